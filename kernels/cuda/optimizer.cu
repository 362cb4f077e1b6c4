// SquaredNorm and AdamW: bytes moved are the ideal, every operand once (SquaredNorm: g; AdamW: 24 bytes of master, m
// and v an element, read and written, 4 or 2 of g, 2 of the weight).
#include <algorithm>

#include "core/ops/control.h"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/reduce.cuh"

namespace trainer::cuda {
namespace {

constexpr int kNormThreads = 256;
constexpr int64_t kPieceElements = 16384, kMostPieces = 1024;  // at least; eight blocks a multiprocessor

int64_t norm_pieces(int64_t elements) { return std::clamp<int64_t>(elements / kPieceElements, 1, kMostPieces); }

// f64, so that no finite gradient overflows.
template <class G, bool kAligned>
__global__ void __launch_bounds__(kNormThreads) squared_norm_kernel(double* sums, const G* g, int64_t n) {
  constexpr int V = kWide<G>, kAhead = 4, kChains = 4;
  CU_SHARED(double, warps, [kNormThreads / kWarp]);
  const int64_t vectors = ceil_div(n, V), end = vectors * (blockIdx.x + 1) / gridDim.x;
  double chain[kChains] = {};
  for (int64_t v = vectors * blockIdx.x / gridDim.x + threadIdx.x; v < end; v += kAhead * kNormThreads) {
    Pack<G, V> ahead[kAhead] = {};
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int64_t at = v + a * kNormThreads;
      if (at < end) ahead[a] = load<V, kAligned>(g + at * V, n - at * V < V ? int(n - at * V) : V);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const Floats<V> x = floats(ahead[a]);
#pragma unroll
      for (int i = 0; i < V; ++i) chain[i % kChains] += double(x.at[i]) * double(x.at[i]);
    }
  }
  const double sum = block_sum((chain[0] + chain[1]) + (chain[2] + chain[3]), warps);
  if (threadIdx.x == 0) store_one(sums + blockIdx.x, sum);
}

__global__ void __launch_bounds__(kNormThreads) norm_outcome_kernel(Outcome* outcome, const double* sums, int pieces) {
  CU_SHARED(double, warps, [kNormThreads / kWarp]);
  double part = 0;
  for (int p = int(threadIdx.x); p < pieces; p += kNormThreads) part += load_one(sums + p);
  const double sum = block_sum(part, warps);
  if (threadIdx.x != 0) return;
  store_one(&outcome->norm2, load_one(&outcome->norm2) + sum);
  if (!(sum - sum == 0)) store_one(&outcome->nonfinite, load_one(&outcome->nonfinite) + 1);  // a NaN, or infinite
}

template <int V, class G>
struct AdamWSpan {
  static constexpr int kInFlight = 1;
  struct Held {
    Pack<float, V> master, m, v;
    Pack<G, V> g;
  };
  float *master, *m, *v;
  const G* g;
  bf16* weight;  // or nullptr
  const Control* control;
  float beta1, beta2, epsilon, weight_decay;
  int64_t decayed;

  __device__ Held load(const At& at) const {
    return {cuda::load<V>(master + at.column, at.count), cuda::load<V>(m + at.column, at.count),
            cuda::load<V>(v + at.column, at.count), cuda::load<V>(g + at.column, at.count)};
  }
  __device__ void store(const At& at, const Held& held) const {
    cu_loads(&control->skip, sizeof control->skip);
    if (control->skip) return;
    cu_loads(control, 4 * sizeof(float));  // fields of one struct: nvcc loads some of them together
    const float factor = control->factor, rate = control->lr / control->bias1, unbias2 = 1 / control->bias2;
    const float decay = 1 - control->lr * weight_decay;
    Floats<V> w = floats(held.master), m1 = floats(held.m), v1 = floats(held.v);
    const Floats<V> gradient = floats(held.g);
    // Which products are fused with a sum is not the compiler's choice, for it would make one for each V.
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float x = gradient.at[i] * factor;
      m1.at[i] = fmaf(beta1, m1.at[i], (1 - beta1) * x);
      v1.at[i] = fmaf(beta2, v1.at[i], (1 - beta2) * (x * x));
      const float kept = at.column + i < decayed ? w.at[i] * decay : w.at[i];
      w.at[i] = kept - rate * m1.at[i] / (sqrtf(v1.at[i] * unbias2) + epsilon);
    }
    store_floats(m + at.column, m1, at.count);
    store_floats(v + at.column, v1, at.count);
    store_floats(master + at.column, w, at.count);
    if (weight) store_floats(weight + at.column, w, at.count);
  }
};

template <int V, class G>
void adamw(Stream& stream, const Extent& extent, const AdamW& op) {
  map<V>(stream, extent,
         AdamWSpan<V, G>{data_as<float>(op.master), data_as<float>(op.m), data_as<float>(op.v), data_as<const G>(op.g),
                         data_as<bf16>(op.weight), data_as<const Control>(op.control), op.beta1, op.beta2, op.epsilon,
                         op.weight_decay, op.decayed});
}

template <int V>
struct SetAsideSpan {
  static constexpr int kInFlight = 2;
  using Held = Pack<float, V>;
  float* to;
  const float* from;
  const Control* control;
  __device__ Held load(const At& at) const { return cuda::load<V>(from + at.column, at.count); }
  __device__ void store(const At& at, const Held& held) const {
    if (!load_one(&control->skip)) store_floats(to + at.column, floats(held), at.count);
  }
};

}  // namespace

size_t scratch_bytes(const SquaredNorm& op) { return size_t(norm_pieces(op.g.elements())) * sizeof(double); }

void run(Stream& stream, const SquaredNorm& op) {
  const int64_t n = op.g.elements(), pieces = norm_pieces(n);
  auto* sums = scratch_of<double>(stream);
  const dim3 grid{unsigned(pieces)}, block{kNormThreads};
  with_dtype(op.kName, op.g.dtype, [&]<class G>(G) {
    const G* g = data_as<const G>(op.g);
    if (aligned(kWide<G>, {1, n}, {&op.g}))
      CU_LAUNCH((squared_norm_kernel<G, true>), grid, block, 0, stream_of(stream), sums, g, n);
    else CU_LAUNCH((squared_norm_kernel<G, false>), grid, block, 0, stream_of(stream), sums, g, n);
  });
  CU_LAUNCH((norm_outcome_kernel), dim3(1), block, 0, stream_of(stream), data_as<Outcome>(op.outcome), sums,
            int(pieces));
}

void run(Stream& stream, const AdamW& op) {
  const Extent extent(1, op.master.elements());
  constexpr int V = kWide<float>;
  with_dtype(op.kName, op.g.dtype, [&]<class G>(G) {
    if (aligned(V, extent, {&op.master, &op.m, &op.v, &op.g, &op.weight})) adamw<V, G>(stream, extent, op);
    else adamw<1, G>(stream, extent, op);
  });
}

void run(Stream& stream, const SetAside& op) {
  const Extent extent(1, op.to.elements());
  constexpr int V = kWide<float>;
  float* to = data_as<float>(op.to);
  const float* from = data_as<const float>(op.from);
  const auto* control = data_as<const Control>(op.control);
  if (aligned(V, extent, {&op.to, &op.from})) map<V>(stream, extent, SetAsideSpan<V>{to, from, control});
  else map<1>(stream, extent, SetAsideSpan<1>{to, from, control});
}

}  // namespace trainer::cuda
