// d_k and d_v on tensor cores: a block has 64 keys, 16 to a warp, and goes through the queries that see them, head
// after head of the group, so that every sum has one order. Scores stand transposed, keys in rows: weights and their
// gradients go from the accumulators of one product straight into the operands of the next.
#include "kernels/cuda/attention_tile.cuh"

namespace trainer::cuda {
namespace {

constexpr int kKeys = 16 * kWarps;
template <int D>
constexpr int kQueries =
    D == 128 ? 32 : 64;  // as many as registers and two blocks to a multiprocessor of 164 KiB allow

// What a block reads of a tile of queries.
template <int D>
struct Stage {
  alignas(16) Bf16 q[kQueries<D> * D], d_out[kQueries<D> * D];
  float lse[kQueries<D>], delta[kQueries<D>];
};
template <int D>
struct Shared {
  alignas(16) Bf16 k[kKeys * D], v[kKeys * D];
  Stage<D> stages[2];
};

// A tile of queries of a head.
struct Place {
  int head, tile;
};

template <int D>
__device__ __forceinline__ void load_queries(Stage<D>& to, const AttentionJob& job, int sequence, Place at) {
  constexpr int kRows = kQueries<D>;
  const int first = at.tile * kRows, thread = int(threadIdx.x);
  load_rows<D, kRows>(to.q, head_at<Bf16>(job.q, job, sequence, at.head), job.q.stride, first, job.length);
  load_rows<D, kRows>(to.d_out, head_at<Bf16>(job.d_out, job, sequence, at.head), job.d_out.stride, first, job.length);
  if (thread < 2 * kRows) {
    const bool there = first + thread % kRows < job.length;
    const float* from = statistics_at(thread < kRows ? job.lse : job.delta, job, sequence, at.head);
    ptx::cp_async_4(thread < kRows ? &to.lse[thread] : &to.delta[thread - kRows],
                    from + (there ? first + thread % kRows : 0), there);
  }
  ptx::cp_async_commit();
}

// scores become weights, d_weights the gradients of the scores before they were scaled.
template <int D>
__device__ __forceinline__ void weigh(float (&scores)[1][kQueries<D> / 8][4], const Stage<D>& at, float scale) {
#pragma unroll
  for (int n = 0; n < kQueries<D> / 8; ++n) {
    const float2 lse = *reinterpret_cast<const float2*>(&at.lse[8 * n + lane_column()]);
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[0][n][i] = ptx::exp2(scores[0][n][i] * scale - (i % 2 ? lse.y : lse.x));
  }
}
template <int D>
__device__ __forceinline__ void grade(float (&d_weights)[1][kQueries<D> / 8][4],
                                      const float (&weights)[1][kQueries<D> / 8][4], const Stage<D>& at) {
#pragma unroll
  for (int n = 0; n < kQueries<D> / 8; ++n) {
    const float2 delta = *reinterpret_cast<const float2*>(&at.delta[8 * n + lane_column()]);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      d_weights[0][n][i] = weights[0][n][i] * (d_weights[0][n][i] - (i % 2 ? delta.y : delta.x));
  }
}

template <int D>
__global__ void __launch_bounds__(kTileThreads) attention_backward_kv(AttentionJob job) {
  constexpr int kRows = kQueries<D>;
  const int kv_head = int(blockIdx.y), sequence = int(blockIdx.z), first = int(blockIdx.x) * kKeys;
  const int group = job.heads / job.kv_heads, row = warp_of_thread() * 16, key = first + row;
  Shared<D>& shared = *cu_dyn_shared<Shared<D>>();
  const int32_t* segments = segments_at(job, sequence);
  const SegmentRange* ranges = ranges_at(job, sequence);
  const SegmentRange own = range_over(ranges, first, kKeys, job.length);
  const Tiles tiles = query_tiles<kRows>(job, first, kKeys);
  const int first_tile = next_tile<kRows>(ranges, own, tiles.begin, tiles.end, job.length), end = (kv_head + 1) * group;
  const float scale = job.scale * kLog2E;

  Place at{kv_head * group, first_tile};
  int stage = 0;
  load_rows<D, kKeys>(shared.k, head_at<Bf16>(job.k, job, sequence, kv_head), job.k.stride, first, job.length);
  load_rows<D, kKeys>(shared.v, head_at<Bf16>(job.v, job, sequence, kv_head), job.v.stride, first, job.length);
  load_queries<D>(shared.stages[0], job, sequence, at);
  float d_k[1][D / 8][4], d_v[1][D / 8][4];
  clear(d_k);
  clear(d_v);
  while (at.head < end) {
    Place next{at.head, next_tile<kRows>(ranges, own, at.tile + 1, tiles.end, job.length)};
    if (next.tile >= tiles.end) next = {at.head + 1, first_tile};
    const int query = at.tile * kRows;
    const Stage<D>& now = shared.stages[stage];
    ptx::cp_async_wait<0>();
    __syncthreads();
    if (next.head < end) load_queries<D>(shared.stages[stage ^ 1], job, sequence, next);
    if (any_in_sight(job, query, kRows, key, 16)) {
      float weights[1][kRows / 8][4], d_weights[1][kRows / 8][4];
      multiply_rows<D>(weights, shared.k, row, now.q);
      const bool one_segment = one_segment_in<kRows>(ranges, own, query, job.length);
      if (!one_segment || !all_in_sight(job, query, kRows, key, 16))
        hide<true>(weights, job, one_segment ? nullptr : segments, key, query);
      weigh<D>(weights, now, scale);
      add_products<D>(d_v, weights, now.d_out);
      multiply_rows<D>(d_weights, shared.v, row, now.d_out);
      grade<D>(d_weights, weights, now);
      add_products<D>(d_k, d_weights, now.q);
    }
    stage ^= 1;
    at = next;
  }
  store_rows<D>(d_k, shared.k, row, head_at<Bf16>(job.d_k, job, sequence, kv_head), job.d_k.stride, first, job.length,
                [&](int, int) { return job.scale; });
  store_rows<D>(d_v, shared.v, row, head_at<Bf16>(job.d_v, job, sequence, kv_head), job.d_v.stride, first, job.length,
                [](int, int) { return 1.0f; });
}

template <int D>
void launch_backward_kv(Stream& stream, const AttentionJob& job) {
  const dim3 grid(unsigned((job.length + kKeys - 1) / kKeys), unsigned(job.kv_heads), unsigned(job.batch));
  CU_FUNC_SMEM((attention_backward_kv<D>), sizeof(Shared<D>));
  CU_LAUNCH((attention_backward_kv<D>), grid, dim3(kTileThreads), sizeof(Shared<D>), stream_of(stream), job);
}

}  // namespace

void attend_tensor_core_grad_kv(Stream& stream, const AttentionJob& job) {
  if (job.width == 64) launch_backward_kv<64>(stream, job);
  else if (job.width == 96) launch_backward_kv<96>(stream, job);
  else launch_backward_kv<128>(stream, job);
}

}  // namespace trainer::cuda
