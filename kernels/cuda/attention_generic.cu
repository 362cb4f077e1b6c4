// Forward for every dtype and width: a block has a tile of queries and goes through the keys that these see.
#include "kernels/cuda/attention_generic.cuh"

namespace trainer::cuda {
namespace {

template <int kTile>
size_t shared_bytes(int width) {
  return sizeof(float) * size_t(3 * kTile * pitch_of(width) + kTile * (kTile + 1) + kTile);
}

// What a thread knows of its row's softmax; kTile / 128 threads have a row together and know the same.
struct Softmax {
  float top = -INFINITY, total = 0;
};

// Scores in base 2 become weights below the highest score so far; factors[row] is what sums of earlier weights shrink
// by.
template <int kTile>
__device__ __forceinline__ void soften(float* scores, float* factors, Softmax& soft) {
  constexpr int kThreadsPerRow = kGenericThreads / kTile;
  const int row = int(threadIdx.x) / kThreadsPerRow, part = int(threadIdx.x) % kThreadsPerRow;
  float* s = scores + row * (kTile + 1);
  float top = soft.top, sum = 0;
  for (int k = part; k < kTile; k += kThreadsPerRow) top = fmaxf(top, s[k]);
  for (int offset = 1; offset < kThreadsPerRow; offset *= 2)
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, offset));
  const float base = top == -INFINITY ? 0 : top;  // a row that has seen no key yet
  for (int k = part; k < kTile; k += kThreadsPerRow) {
    s[k] = exp2f(s[k] - base);
    sum += s[k];
  }
  for (int offset = 1; offset < kThreadsPerRow; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  const float factor = exp2f(soft.top - base);
  if (part == 0) factors[row] = factor;
  soft = {top, soft.total * factor + sum};
}

template <int kTile>
__global__ void __launch_bounds__(kGenericThreads, 2) attention_generic(AttentionJob job) {
  const int pitch = pitch_of(job.width), head = int(blockIdx.y), sequence = int(blockIdx.z);
  const int first = int(gridDim.x - 1 - blockIdx.x) * kTile;  // late queries see more keys: the longest blocks first
  float* const q = cu_dyn_shared<float>();
  float *const kv = q + kTile * pitch, *const sums = kv + kTile * pitch, *const scores = sums + kTile * pitch,
               *const factors = scores + kTile * (kTile + 1);
  const int kv_head = head / (job.heads / job.kv_heads);
  const Head keys = head_of(job.k, job, sequence, kv_head), values = head_of(job.v, job, sequence, kv_head);
  const int32_t* segments = segments_at(job, sequence);
  const SegmentRange* ranges = ranges_at(job, sequence);
  const SegmentRange own = range_over(ranges, first, kTile, job.length);
  const Tiles tiles = key_tiles<kTile>(job, first, kTile);

  load_tile<kTile>(q, head_of(job.q, job, sequence, head), first, job);
  clear_sums<kTile>(sums, job.width);
  Softmax soft;
  for (int tile = next_tile<kTile>(ranges, own, tiles.begin, tiles.end, job.length); tile < tiles.end;
       tile = next_tile<kTile>(ranges, own, tile + 1, tiles.end, job.length)) {
    load_tile<kTile>(kv, keys, tile * kTile, job);
    __syncthreads();
    float dots[kTile / 8][kTile / 16];
    multiply_rows<kTile>(dots, q, kv, job.width);
    for (int i = 0; i < kTile / 8; ++i)
      for (int j = 0; j < kTile / 16; ++j) {
        const int row = thread_y() + 8 * i, column = thread_x() + 16 * j;
        scores[row * (kTile + 1) + column] =
            sees(job, segments, first + row, tile * kTile + column) ? dots[i][j] * (job.scale * kLog2E) : -INFINITY;
      }
    __syncthreads();
    load_tile<kTile>(kv, values, tile * kTile, job);
    soften<kTile>(scores, factors, soft);
    __syncthreads();
    add_products<kTile>(
        sums, kv, job.width, [&](int row) { return factors[row]; },
        [&](int row, int k) { return scores[row * (kTile + 1) + k]; });
    __syncthreads();
  }

  constexpr int kThreadsPerRow = kGenericThreads / kTile;
  const int row = int(threadIdx.x) / kThreadsPerRow;
  if (int(threadIdx.x) % kThreadsPerRow == 0) {
    factors[row] = 1 / soft.total;
    if (first + row < job.length)
      statistics_at(job.lse, job, sequence, head)[first + row] = soft.top + log2f(soft.total);
  }
  __syncthreads();
  store_sums<kTile>(sums, head_of(job.out, job, sequence, head), first, job, [&](int r) { return factors[r]; });
}

template <int kTile>
void launch_generic(Stream& stream, const AttentionJob& job) {
  const size_t bytes = shared_bytes<kTile>(job.width);
  const dim3 grid(unsigned((job.length + kTile - 1) / kTile), unsigned(job.heads), unsigned(job.batch));
  CU_FUNC_SMEM((attention_generic<kTile>), bytes);
  CU_LAUNCH((attention_generic<kTile>), grid, dim3(kGenericThreads), bytes, stream_of(stream), job);
}

}  // namespace

void attend_generic(Stream& stream, const AttentionJob& job) {
  if (job.width <= kGenericNarrow) launch_generic<32>(stream, job);
  else launch_generic<16>(stream, job);
}

}  // namespace trainer::cuda
