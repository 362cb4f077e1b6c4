// d_q on tensor cores: a block has 64 queries, 16 to a warp, and goes through their keys; weights are found again from
// lse.
#include "kernels/cuda/attention_tile.cuh"

namespace trainer::cuda {
namespace {

constexpr int kQueries = 16 * kWarps;
template <int D>
constexpr int kKeys = D == 128 ? 32 : 64;  // as many as registers and two blocks to a multiprocessor of 164 KiB allow
template <int D>
constexpr size_t kSharedBytes = (2 * kQueries + 4 * kKeys<D>)*D * sizeof(Bf16);

// Of the rows lane_row() + 8 half of a warp; 0 behind the end.
__device__ __forceinline__ void load_statistics(float (&x)[2], const float* of, int query, int length) {
  for (int half = 0; half < 2; ++half) {
    const int t = query + 8 * half + lane_row();
    x[half] = t < length ? of[t] : 0;
  }
}

template <int D>
__global__ void __launch_bounds__(kTileThreads) attention_backward_q(AttentionJob job) {
  constexpr int kRows = kKeys<D>, kStage = 2 * kRows * D;
  const int head = int(blockIdx.y), sequence = int(blockIdx.z), kv_head = head / (job.heads / job.kv_heads);
  const int first = int(gridDim.x - 1 - blockIdx.x) * kQueries;  // late queries see more keys: the longest blocks first
  const int row = warp_of_thread() * 16, query = first + row;
  Bf16 *const q = cu_dyn_shared<Bf16>(), *const d_out = q + kQueries * D, *const stages = d_out + kQueries * D;
  const auto* k = head_at<Bf16>(job.k, job, sequence, kv_head);
  const auto* v = head_at<Bf16>(job.v, job, sequence, kv_head);
  const int32_t* segments = segments_at(job, sequence);
  const SegmentRange* ranges = ranges_at(job, sequence);
  const SegmentRange own = range_over(ranges, first, kQueries, job.length);
  const Tiles tiles = key_tiles<kRows>(job, first, kQueries);
  const float scale = job.scale * kLog2E;
  const auto load_keys = [&](int tile, int stage) {
    Bf16* to = stages + stage * kStage;
    load_rows<D, kRows>(to, k, job.k.stride, tile * kRows, job.length);
    load_rows<D, kRows>(to + kRows * D, v, job.v.stride, tile * kRows, job.length);
    ptx::cp_async_commit();
  };

  int tile = next_tile<kRows>(ranges, own, tiles.begin, tiles.end, job.length), stage = 0;
  load_rows<D, kQueries>(q, head_at<Bf16>(job.q, job, sequence, head), job.q.stride, first, job.length);
  load_rows<D, kQueries>(d_out, head_at<Bf16>(job.d_out, job, sequence, head), job.d_out.stride, first, job.length);
  load_keys(tile, stage);
  float lse[2], delta[2], sums[1][D / 8][4];
  load_statistics(lse, statistics_at(job.lse, job, sequence, head), query, job.length);
  load_statistics(delta, statistics_at(job.delta, job, sequence, head), query, job.length);
  clear(sums);
  while (tile < tiles.end) {
    const int next = next_tile<kRows>(ranges, own, tile + 1, tiles.end, job.length), key = tile * kRows;
    const Bf16 *keys = stages + stage * kStage, *values = keys + kRows * D;
    ptx::cp_async_wait<0>();
    __syncthreads();
    if (next < tiles.end) load_keys(next, stage ^ 1);
    if (any_in_sight(job, query, 16, key, kRows)) {
      float scores[1][kRows / 8][4], d_scores[1][kRows / 8][4];
      multiply_rows<D>(scores, q, row, keys);
      const bool one_segment = one_segment_in<kRows>(ranges, own, key, job.length);
      if (!one_segment || !all_in_sight(job, query, 16, key, kRows))
        hide<false>(scores, job, one_segment ? nullptr : segments, query, key);
      multiply_rows<D>(d_scores, d_out, row, values);
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          d_scores[0][n][i] = ptx::exp2(scores[0][n][i] * scale - lse[i / 2]) * (d_scores[0][n][i] - delta[i / 2]);
      add_products<D>(sums, d_scores, keys);
    }
    stage ^= 1;
    tile = next;
  }
  store_rows<D>(sums, q, row, head_at<Bf16>(job.d_q, job, sequence, head), job.d_q.stride, first, job.length,
                [&](int, int) { return job.scale; });
}

template <int D>
void launch_backward_q(Stream& stream, const AttentionJob& job) {
  const dim3 grid(unsigned((job.length + kQueries - 1) / kQueries), unsigned(job.heads), unsigned(job.batch));
  CU_FUNC_SMEM((attention_backward_q<D>), kSharedBytes<D>);
  CU_LAUNCH((attention_backward_q<D>), grid, dim3(kTileThreads), kSharedBytes<D>, stream_of(stream), job);
}

}  // namespace

void attend_tensor_core_grad_q(Stream& stream, const AttentionJob& job) {
  if (job.width == 64) launch_backward_q<64>(stream, job);
  else if (job.width == 96) launch_backward_q<96>(stream, job);
  else launch_backward_q<128>(stream, job);
}

}  // namespace trainer::cuda
