// Forward on tensor cores: a block has 128 queries, 32 to a warp, and goes through their keys 64 at a time with an
// online softmax. Keys and values take turns in a ring of three tiles, which are filled two turns ahead.
#include "kernels/cuda/attention_softmax.cuh"

namespace trainer::cuda {
namespace {

constexpr int kM = 2, kQueries = 16 * kM * kWarps, kStages = 3;
template <int D>
constexpr int kKeys = D == 128 ? 32 : 64;  // as many as registers hold the scores of

template <int D>
constexpr size_t kSharedBytes = (kQueries + kStages * kKeys<D>)*D * sizeof(Bf16);

// Waits for the oldest of the two tiles on their way, which the threads then may read; what they read before may go.
__device__ __forceinline__ void next_turn() {
  ptx::cp_async_wait<1>();
  __syncthreads();
}

template <int D>
__global__ void __launch_bounds__(kTileThreads, 2) attention_forward(AttentionJob job) {
  constexpr int kRows = kKeys<D>;
  const int head = int(blockIdx.y), sequence = int(blockIdx.z), kv_head = head / (job.heads / job.kv_heads);
  const int first = int(gridDim.x - 1 - blockIdx.x) * kQueries;  // late queries see more keys: the longest blocks first
  const int row = warp_of_thread() * 16 * kM, query = first + row;
  Bf16 *const queries = cu_dyn_shared<Bf16>(), *const ring = queries + kQueries * D;
  const auto* q = head_at<Bf16>(job.q, job, sequence, head);
  const auto* k = head_at<Bf16>(job.k, job, sequence, kv_head);
  const auto* v = head_at<Bf16>(job.v, job, sequence, kv_head);
  const int32_t* segments = segments_at(job, sequence);
  const SegmentRange* ranges = ranges_at(job, sequence);
  const SegmentRange own = range_over(ranges, first, kQueries, job.length);
  const Tiles tiles = key_tiles<kRows>(job, first, kQueries);
  const float scale = job.scale * kLog2E;

  int tile = next_tile<kRows>(ranges, own, tiles.begin, tiles.end, job.length), turn = 0;
  load_rows<D, kQueries>(queries, q, job.q.stride, first, job.length);
  load_rows<D, kRows>(ring, k, job.k.stride, tile * kRows, job.length);
  ptx::cp_async_commit();
  load_rows<D, kRows>(ring + kRows * D, v, job.v.stride, tile * kRows, job.length);
  ptx::cp_async_commit();

  Softmax<kM> soft;
  float sums[kM][D / 8][4], shrink[kM][2];
  soft.clear();
  clear(sums);
  while (tile < tiles.end) {
    const int next = next_tile<kRows>(ranges, own, tile + 1, tiles.end, job.length), key = tile * kRows;
    const bool seen = any_in_sight(job, query, 16 * kM, key, kRows);  // by this warp
    const auto stage = [&](int turns) { return ring + (turn + turns) % kStages * (kRows * D); };
    float scores[kM][kRows / 8][4];
    next_turn();
    if (next < tiles.end) load_rows<D, kRows>(stage(2), k, job.k.stride, next * kRows, job.length);
    ptx::cp_async_commit();
    if (seen) {
      multiply_rows<D>(scores, queries, row, stage(0));
      const bool one_segment = one_segment_in<kRows>(ranges, own, key, job.length);
      if (!one_segment || !all_in_sight(job, query, 16 * kM, key, kRows))
        hide<false>(scores, job, one_segment ? nullptr : segments, query, key);
      soften(scores, soft, shrink, scale);
      scale_rows(sums, shrink);
    }
    next_turn();
    if (next < tiles.end) load_rows<D, kRows>(stage(3), v, job.v.stride, next * kRows, job.length);
    ptx::cp_async_commit();
    if (seen) add_products<D>(sums, scores, stage(1));
    turn = (turn + 2) % kStages;
    tile = next;
  }
  ptx::cp_async_wait<0>();

  float* lse = statistics_at(job.lse, job, sequence, head);
  store_rows<D>(sums, queries, row, head_at<Bf16>(job.out, job, sequence, head), job.out.stride, first, job.length,
                [&](int m, int half) {
                  const float total = row_sum(soft.total[m][half]);
                  const int t = query + 16 * m + 8 * half + lane_row();
                  if (t < job.length && lane_column() == 0) lse[t] = soft.top[m][half] * scale + log2f(total);
                  return 1 / total;
                });
}

template <int D>
void launch_forward(Stream& stream, const AttentionJob& job) {
  const dim3 grid(unsigned((job.length + kQueries - 1) / kQueries), unsigned(job.heads), unsigned(job.batch));
  CU_FUNC_SMEM((attention_forward<D>), kSharedBytes<D>);
  CU_LAUNCH((attention_forward<D>), grid, dim3(kTileThreads), kSharedBytes<D>, stream_of(stream), job);
}

}  // namespace

void attend_tensor_core(Stream& stream, const AttentionJob& job) {
  if (job.width == 64) launch_forward<64>(stream, job);
  else if (job.width == 96) launch_forward<96>(stream, job);
  else launch_forward<128>(stream, job);
}

}  // namespace trainer::cuda
