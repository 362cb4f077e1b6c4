// Rope: bytes moved are the ideal, x read and written once. A thread rotates V pairs of up to four heads of one row:
// their loads are in flight while it works out the sines and cosines, which serve all four.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"

namespace trainer::cuda {
namespace {

constexpr int kRopeThreads = 128, kHeads = 4;
constexpr int64_t kMostPairs = 128;

struct Frequencies {
  float at[kMostPairs];
};
struct Angles {
  const int32_t* positions;  // or nullptr
  int64_t seq_len;
  float direction;
};

// Of an angle below 2^30: less the nearest multiple of pi / 2 in f64, where that is exact enough, then polynomials in
// f32 (Cephes: sinf, cosf), to 1e-7.
__device__ __forceinline__ void sine_cosine(float angle, float& sine, float& cosine) {
  const double quarters = rint(double(angle) * 0.6366197723675814);
  const float r = float(fma(quarters, -1.5707963267948966, double(angle))), r2 = r * r;
  const int quadrant = int(quarters);
  const float s = ((-1.9515295891e-4f * r2 + 8.3321608736e-3f) * r2 - 1.6666654611e-1f) * r2 * r + r;
  const float c =
      ((2.443315711809948e-5f * r2 - 1.388731625493765e-3f) * r2 + 4.166664568298827e-2f) * r2 * r2 - 0.5f * r2 + 1;
  sine = quadrant & 1 ? c : s;
  cosine = quadrant & 1 ? s : c;
  if (quadrant & 2) sine = -sine;
  if ((quadrant + 1) & 2) cosine = -cosine;
}

// x: rows of `heads` heads of 2 * pairs values. Items are (row, four heads, V pairs), the last the fastest.
template <int V, class T>
__global__ void __launch_bounds__(kRopeThreads)
    rope_kernel(Rows<T> x, int64_t items, int heads, int pairs, Angles angles, Frequencies frequencies) {
  CU_SHARED(float, inv_freq, [kMostPairs]);
  for (int i = int(threadIdx.x); i < pairs; i += int(blockDim.x)) inv_freq[i] = frequencies.at[i];
  __syncthreads();
  const int64_t item = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (item >= items) return;
  const int vectors = pairs / V, quads = (heads + kHeads - 1) / kHeads;
  const int64_t above = divide(item, vectors), row = divide(above, quads);
  const int pair = int(item - above * vectors) * V, first = int(above - row * quads) * kHeads;
  T* at = x[row] + int64_t(first) * 2 * pairs + pair;
  Pack<T, V> low[kHeads] = {}, high[kHeads] = {};
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (first + h >= heads) break;
    low[h] = load<V>(at + h * 2 * pairs);
    high[h] = load<V>(at + h * 2 * pairs + pairs);
  }
  const auto position = float(angles.positions ? int64_t(load_one(angles.positions + row)) : row % angles.seq_len);
  Floats<V> sine, cosine;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    sine_cosine(position * inv_freq[pair + i], sine.at[i], cosine.at[i]);
    sine.at[i] *= angles.direction;
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (first + h >= heads) break;
    Floats<V> a = floats(low[h]), b = floats(high[h]);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float from = a.at[i];
      a.at[i] = fmaf(-b.at[i], sine.at[i], from * cosine.at[i]);
      b.at[i] = fmaf(from, sine.at[i], b.at[i] * cosine.at[i]);
    }
    store_floats(at + h * 2 * pairs, a);
    store_floats(at + h * 2 * pairs + pairs, b);
  }
}

template <int V, class T>
void rope(Stream& stream, const Rope& op) {
  const int64_t heads = op.x.shape[1], pairs = op.x.shape[2] / 2;
  const int64_t items = op.x.rows() * ceil_div(heads, kHeads) * (pairs / V);
  if (items == 0) return;
  Frequencies frequencies{};
  rope_frequencies(op.frequencies, 2 * pairs, frequencies.at);
  const Angles angles{data_as<const int32_t>(op.positions), op.seq_len, op.inverse ? -1.0f : 1.0f};
  const int threads = threads_for(items, kRopeThreads);
  CU_LAUNCH((rope_kernel<V, T>), dim3(unsigned(ceil_div(items, threads))), dim3(threads), 0, stream_of(stream),
            Rows<T>(op.x), items, int(heads), int(pairs), angles, frequencies);
}

}  // namespace

void run(Stream& stream, const Rope& op) {
  const int64_t width = op.x.shape[2];
  if (width % 2 || width > 2 * kMostPairs) refuse_head_width(op.kName, width, 2 * kMostPairs);
  with_dtype(op.kName, {&op.x}, [&]<class T>(T) {
    constexpr int V = kWide<T>;
    if (width / 2 % V == 0 && aligned(V, {op.x.rows(), op.x.row_elements()}, {&op.x})) rope<V, T>(stream, op);
    else rope<1, T>(stream, op);
  });
}

}  // namespace trainer::cuda
