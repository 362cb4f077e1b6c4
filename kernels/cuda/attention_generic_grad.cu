// Backward for every dtype and width, in two passes that each add in one order: a block has a tile of queries and goes
// through their keys for d_q, or has a tile of keys and goes through their queries, head after head, for d_k and d_v.
// Weights are found again from lse.
#include "kernels/cuda/attention_generic.cuh"

namespace trainer::cuda {
namespace {

template <int kTile>
size_t shared_bytes(int width) {  // four tiles of operands, two of sums, weights and their gradients
  return sizeof(float) * size_t(6 * kTile * pitch_of(width) + 2 * kTile * (kTile + 1));
}

// The tiles of a block, one behind the other.
template <int kTile>
struct Shared {
  float *q, *d_out, *k, *v, *first_sums, *second_sums, *weights, *d_scores;
  __device__ explicit Shared(int width) {
    const int tile = kTile * pitch_of(width);
    q = cu_dyn_shared<float>();
    d_out = q + tile;
    k = d_out + tile;
    v = k + tile;
    first_sums = v + tile;
    second_sums = first_sums + tile;
    weights = second_sums + tile;
    d_scores = weights + kTile * (kTile + 1);
  }
};

// Weights of the queries from `first_q` on and the keys from `first_k` on, and the gradients of the scores before they
// were scaled: p = exp2(score - lse), ds = p (d_out . v - delta). Each thread writes its own.
template <int kTile>
__device__ __forceinline__ void weigh(const AttentionJob& job, const Shared<kTile>& at, const int32_t* segments,
                                      const float* lse, const float* delta, int first_q, int first_k) {
  float dots[kTile / 8][kTile / 16], d_weights[kTile / 8][kTile / 16];
  multiply_rows<kTile>(dots, at.q, at.k, job.width);
  multiply_rows<kTile>(d_weights, at.d_out, at.v, job.width);
  for (int i = 0; i < kTile / 8; ++i)
    for (int j = 0; j < kTile / 16; ++j) {
      const int row = thread_y() + 8 * i, column = thread_x() + 16 * j, q = first_q + row;
      float weight = 0, d_score = 0;
      if (sees(job, segments, q, first_k + column)) {
        weight = exp2f(dots[i][j] * (job.scale * kLog2E) - lse[q]);
        d_score = weight * (d_weights[i][j] - delta[q]);
      }
      at.weights[row * (kTile + 1) + column] = weight;
      at.d_scores[row * (kTile + 1) + column] = d_score;
    }
}

template <int kTile>
__global__ void __launch_bounds__(kGenericThreads, 2) attention_generic_grad_q(AttentionJob job) {
  const Shared<kTile> at(job.width);
  const int head = int(blockIdx.y), sequence = int(blockIdx.z), kv_head = head / (job.heads / job.kv_heads);
  const int first = int(gridDim.x - 1 - blockIdx.x) * kTile;
  const Head keys = head_of(job.k, job, sequence, kv_head), values = head_of(job.v, job, sequence, kv_head);
  const float *lse = statistics_at(job.lse, job, sequence, head),
              *delta = statistics_at(job.delta, job, sequence, head);
  const int32_t* segments = segments_at(job, sequence);
  const SegmentRange* ranges = ranges_at(job, sequence);
  const SegmentRange own = range_over(ranges, first, kTile, job.length);
  const Tiles tiles = key_tiles<kTile>(job, first, kTile);

  load_tile<kTile>(at.q, head_of(job.q, job, sequence, head), first, job);
  load_tile<kTile>(at.d_out, head_of(job.d_out, job, sequence, head), first, job);
  clear_sums<kTile>(at.first_sums, job.width);
  for (int tile = next_tile<kTile>(ranges, own, tiles.begin, tiles.end, job.length); tile < tiles.end;
       tile = next_tile<kTile>(ranges, own, tile + 1, tiles.end, job.length)) {
    load_tile<kTile>(at.k, keys, tile * kTile, job);
    load_tile<kTile>(at.v, values, tile * kTile, job);
    __syncthreads();
    weigh<kTile>(job, at, segments, lse, delta, first, tile * kTile);
    __syncthreads();
    add_products<kTile>(at.first_sums, at.k, job.width,
                        [&](int row, int k) { return at.d_scores[row * (kTile + 1) + k]; });
    __syncthreads();
  }
  store_sums<kTile>(at.first_sums, head_of(job.d_q, job, sequence, head), first, job, [&](int) { return job.scale; });
}

template <int kTile>
__global__ void __launch_bounds__(kGenericThreads, 2) attention_generic_grad_kv(AttentionJob job) {
  const Shared<kTile> at(job.width);
  const int kv_head = int(blockIdx.y), sequence = int(blockIdx.z), first = int(blockIdx.x) * kTile;
  const int group = job.heads / job.kv_heads;
  const int32_t* segments = segments_at(job, sequence);
  const SegmentRange* ranges = ranges_at(job, sequence);
  const SegmentRange own = range_over(ranges, first, kTile, job.length);
  const Tiles tiles = query_tiles<kTile>(job, first, kTile);

  load_tile<kTile>(at.k, head_of(job.k, job, sequence, kv_head), first, job);
  load_tile<kTile>(at.v, head_of(job.v, job, sequence, kv_head), first, job);
  clear_sums<kTile>(at.first_sums, job.width);
  clear_sums<kTile>(at.second_sums, job.width);
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const Head q = head_of(job.q, job, sequence, head), d_out = head_of(job.d_out, job, sequence, head);
    for (int tile = next_tile<kTile>(ranges, own, tiles.begin, tiles.end, job.length); tile < tiles.end;
         tile = next_tile<kTile>(ranges, own, tile + 1, tiles.end, job.length)) {
      load_tile<kTile>(at.q, q, tile * kTile, job);
      load_tile<kTile>(at.d_out, d_out, tile * kTile, job);
      __syncthreads();
      weigh<kTile>(job, at, segments, statistics_at(job.lse, job, sequence, head),
                   statistics_at(job.delta, job, sequence, head), tile * kTile, first);
      __syncthreads();
      add_products<kTile>(at.first_sums, at.q, job.width,
                          [&](int row, int q_row) { return at.d_scores[q_row * (kTile + 1) + row]; });
      add_products<kTile>(at.second_sums, at.d_out, job.width,
                          [&](int row, int q_row) { return at.weights[q_row * (kTile + 1) + row]; });
      __syncthreads();
    }
  }
  store_sums<kTile>(at.first_sums, head_of(job.d_k, job, sequence, kv_head), first, job,
                    [&](int) { return job.scale; });
  store_sums<kTile>(at.second_sums, head_of(job.d_v, job, sequence, kv_head), first, job, [](int) { return 1.0f; });
}

template <int kTile>
void launch_generic_grad(Stream& stream, const AttentionJob& job) {
  const size_t bytes = shared_bytes<kTile>(job.width);
  const unsigned tiles = unsigned((job.length + kTile - 1) / kTile);
  const dim3 of_queries(tiles, unsigned(job.heads), unsigned(job.batch));
  const dim3 of_keys(tiles, unsigned(job.kv_heads), unsigned(job.batch));
  CU_FUNC_SMEM((attention_generic_grad_q<kTile>), bytes);
  CU_FUNC_SMEM((attention_generic_grad_kv<kTile>), bytes);
  CU_LAUNCH((attention_generic_grad_q<kTile>), of_queries, dim3(kGenericThreads), bytes, stream_of(stream), job);
  CU_LAUNCH((attention_generic_grad_kv<kTile>), of_keys, dim3(kGenericThreads), bytes, stream_of(stream), job);
}

}  // namespace

void attend_generic_grad(Stream& stream, const AttentionJob& job) {
  if (job.width <= kGenericNarrow) launch_generic_grad<32>(stream, job);
  else launch_generic_grad<16>(stream, job);
}

}  // namespace trainer::cuda
