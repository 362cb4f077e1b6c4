// RmsNormGrad and LayerNormGrad: bytes moved are the ideal, d_y, x, d_residual and d_x once, and beside them the sums
// for the weight. A block of threads walks down a piece of the rows; a lane keeps the same columns in every row, so it
// sums their share of the weight's gradient in registers. The kNormPartials blocks of rows are cut into up to kPieces
// pieces each, so that the whole chip works; their sums are added up in order by a second kernel (384 rows of f32 at
// most, of 3072 or more).
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/norm.cuh"

namespace trainer::cuda {
namespace {

constexpr int kHold = 2, kGradThreads = 256, kMostLanes = 512;
constexpr int64_t kPieces = 16, kRowsOfPiece = 8;  // at most; at least

// Both norms; what RMSNorm has not (mean) is empty.
template <class T>
struct NormGradRows {
  GroupRows<T> d_x;
  GroupRows<const T> d_y, x, d_residual;
  const T* weight;
  const float *mean, *rstd;
  uint32_t rows, groups;
  float* sums;  // [pieces of all blocks, columns] of the weight, then of the bias
};

template <class T, bool kCentred, bool kAligned>
__global__ void __launch_bounds__(kMostLanes) norm_grad_kernel(NormGradRows<T> a, int pieces) {
  constexpr int V = kWide<T>, kSums = kCentred ? 2 : 1;
  CU_SHARED(float, warps, [2][kWarp * 2]);
  const int64_t columns = a.x.columns, block = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  const int64_t block_begin = a.rows * block / kNormPartials,
                length = a.rows * (block + 1) / kNormPartials - block_begin;
  const auto begin = uint32_t(block_begin + length * piece / pieces);
  const auto end = uint32_t(block_begin + length * (piece + 1) / pieces);
  const int lane = int(threadIdx.x), team = int(blockDim.x), all = int((columns + V - 1) / V);
  float* const d_weight = a.sums + blockIdx.x * columns;
  float* const d_bias = d_weight + gridDim.x * columns;
  const auto count = [&](int v) { return columns - int64_t(v) * V < V ? int(columns - int64_t(v) * V) : V; };
  float weight_sum[kHold * V] = {}, bias_sum[kCentred ? kHold * V : 1] = {};
  for (int v = lane + kHold * team; v < all; v += team)
    for (int i = 0; i < count(v); ++i) {
      d_weight[v * V + i] = 0;
      if constexpr (kCentred) d_bias[v * V + i] = 0;
    }

  int turn = 0;
  for (uint32_t base = begin; base < end; base += blockDim.y, turn ^= 1) {
    const bool own = base + threadIdx.y < end;
    const uint32_t row = own ? base + threadIdx.y : begin, n = row / a.groups, group = row % a.groups;
    const int vectors = own ? all : 0;
    const T *x = a.x.at(n, group), *d_y = a.d_y.at(n, group);
    const float mean = kCentred ? a.mean[row] : 0, rstd = a.rstd[row];
    Pack<T, V> xs[kHold] = {}, d_ys[kHold] = {};
#pragma unroll
    for (int h = 0; h < kHold; ++h)
      if (const int v = lane + h * team; v < vectors) {
        xs[h] = load<V, kAligned>(x + v * V, count(v));
        d_ys[h] = load<V, kAligned>(d_y + v * V, count(v));
      }
    float sums[2] = {};  // of g * x_hat and of g, where g = d_y * weight
    const auto sum_up = [&](int v, const Pack<T, V>& x_pack, const Pack<T, V>& d_pack, float* to_weight,
                            float* to_bias) {
      const Floats<V> value = floats(x_pack), d = floats(d_pack);
      const Floats<V> weight = load_floats<V, kAligned>(a.weight + v * V, count(v));
#pragma unroll
      for (int i = 0; i < V; ++i) {
        if (i >= count(v)) break;
        const float x_hat = (value.at[i] - mean) * rstd, g = d.at[i] * weight.at[i];
        sums[0] += g * x_hat;
        if constexpr (kCentred) sums[1] += g;
        to_weight[i] += d.at[i] * x_hat;
        if constexpr (kCentred) to_bias[i] += d.at[i];
      }
    };
#pragma unroll
    for (int h = 0; h < kHold; ++h)
      if (const int v = lane + h * team; v < vectors)
        sum_up(v, xs[h], d_ys[h], weight_sum + h * V, bias_sum + (kCentred ? h * V : 0));
    for (int v = lane + kHold * team; v < vectors; v += team)
      sum_up(v, load<V, kAligned>(x + v * V, count(v)), load<V, kAligned>(d_y + v * V, count(v)), d_weight + v * V,
             d_bias + v * V);
    team_sum(sums, warps[turn]);
    const float along = sums[0] / float(columns), level = sums[1] / float(columns);
    T* d_x = a.d_x.at(n, group);
    const T* d_residual = a.d_residual ? a.d_residual.at(n, group) : nullptr;
    const auto finish = [&](int v, const Pack<T, V>& x_pack, const Pack<T, V>& d_pack) {
      const Floats<V> value = floats(x_pack), weight = load_floats<V, kAligned>(a.weight + v * V, count(v));
      Floats<V> d = floats(d_pack), onto{};
      if (d_residual) onto = load_floats<V, kAligned>(d_residual + v * V, count(v));
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float x_hat = (value.at[i] - mean) * rstd;
        d.at[i] = (d.at[i] * weight.at[i] - level - x_hat * along) * rstd + onto.at[i];
      }
      store_floats<V, kAligned>(d_x + v * V, d, count(v));
    };
#pragma unroll
    for (int h = 0; h < kHold; ++h)
      if (const int v = lane + h * team; v < vectors) finish(v, xs[h], d_ys[h]);
    for (int v = lane + kHold * team; v < vectors; v += team)
      finish(v, load<V, kAligned>(x + v * V, count(v)), load<V, kAligned>(d_y + v * V, count(v)));
  }

  // The teams of the block one after the other, in shared memory: [kHold * V][lanes], and the same for the bias.
  float* shared = cu_dyn_shared<float>();
  for (int turn_of = 0; turn_of < int(blockDim.y); ++turn_of) {
    if (turn_of > 0) __syncthreads();
    if (turn_of != int(threadIdx.y)) continue;
    const bool last = turn_of + 1 == int(blockDim.y);
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      float* own = s == 0 ? weight_sum : bias_sum;
#pragma unroll
      for (int i = 0; i < kHold * V; ++i) {
        float* at = shared + (s * kHold * V + i) * team + lane;
        const float total = (turn_of > 0 ? *at : 0) + own[i];
        const int column = (lane + i / V * team) * V + i % V;
        if (!last) *at = total;
        else if (column < columns) (s == 0 ? d_weight : d_bias)[column] = total;
      }
    }
  }
}

// Row b of `to` is the sum of rows [b * pieces, (b + 1) * pieces) of `from`, in order.
__global__ void __launch_bounds__(256) add_pieces_kernel(float* to, const float* from, int64_t columns, int pieces) {
  const int64_t column = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const float* at = from + blockIdx.y * pieces * columns + column;
  float sum = 0;
  for (int p = 0; p < pieces; ++p) sum += at[p * columns];
  to[blockIdx.y * columns + column] = sum;
}

template <class Op>
int pieces_of(const Op& op) {
  const int64_t rows = op.x.shape.rank == 3 ? op.x.rows() * op.x.shape[1] : op.x.rows();
  return int(std::clamp<int64_t>(rows / (kNormPartials * kRowsOfPiece), 1, kPieces));
}
template <class Op>
size_t bytes_of(const Op& op) {
  return pieces_of(op) == 1 ? 0 : size_t(pieces_of(op)) * op.partials.bytes();
}

template <bool kCentred, class T, class Op>
void norm_grad(Stream& stream, const Op& op, const float* mean) {
  NormGradRows<T> rows{};
  rows.d_x = GroupRows<T>(op.d_x);
  rows.d_y = GroupRows<const T>(op.d_y);
  rows.x = GroupRows<const T>(op.x);
  rows.d_residual = GroupRows<const T>(op.d_residual);
  rows.weight = data_as<const T>(op.weight);
  rows.mean = mean;
  rows.rstd = data_as<const float>(op.rstd);
  rows.rows = uint32_t(op.x.rows() * rows.x.groups);
  rows.groups = uint32_t(rows.x.groups);
  const int pieces = pieces_of(op), blocks = int(kNormPartials) * pieces;
  float* partials = data_as<float>(op.partials);
  rows.sums = pieces == 1 ? partials : scratch_of<float>(stream);
  const int64_t columns = rows.x.columns, vectors = ceil_div(columns, kWide<T>);
  if (columns == 0) return;
  const Team team = team_for(vectors, kHold, kMostLanes, kGradThreads, ceil_div(rows.rows, blocks));
  const size_t shared = team.rows == 1 ? 0 : size_t((kCentred ? 2 : 1) * kHold * kWide<T> * team.lanes) * sizeof(float);
  const dim3 grid{unsigned(blocks)}, block{unsigned(team.lanes), unsigned(team.rows)};
  if (rows_aligned({&op.d_x, &op.d_y, &op.x, &op.d_residual, &op.weight}))
    CU_LAUNCH((norm_grad_kernel<T, kCentred, true>), grid, block, shared, stream_of(stream), rows, pieces);
  else CU_LAUNCH((norm_grad_kernel<T, kCentred, false>), grid, block, shared, stream_of(stream), rows, pieces);
  if (pieces == 1) return;
  const int threads = threads_for(columns, 256);
  CU_LAUNCH((add_pieces_kernel),
            (dim3{unsigned(ceil_div(columns, threads)), unsigned(kCentred ? 2 : 1) * unsigned(kNormPartials)}),
            dim3(threads), 0, stream_of(stream), partials, rows.sums, columns, pieces);
}

}  // namespace

size_t scratch_bytes(const RmsNormGrad& op) { return bytes_of(op); }
size_t scratch_bytes(const LayerNormGrad& op) { return bytes_of(op); }

void run(Stream& stream, const RmsNormGrad& op) {
  with_dtype(op.kName, {&op.d_x, &op.d_y, &op.x, &op.weight, &op.d_residual},
             [&]<class T>(T) { norm_grad<false, T>(stream, op, nullptr); });
}

void run(Stream& stream, const LayerNormGrad& op) {
  with_dtype(op.kName, {&op.d_x, &op.d_y, &op.x, &op.weight, &op.d_residual},
             [&]<class T>(T) { norm_grad<true, T>(stream, op, data_as<const float>(op.mean)); });
}

}  // namespace trainer::cuda
