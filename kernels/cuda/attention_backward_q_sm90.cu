// d_q by warp groups: a block has 128 queries, 64 to a group, and goes through their keys. A group begins the scores of
// a tile and their gradients and, behind them, the sums of the tile before, whose gradients it has in registers.
#include "kernels/cuda/attention_warp_group.cuh"

namespace trainer::cuda {
namespace {

constexpr int kQueries = kBlockRows;
constexpr int kKeys = 64, kStages = 3;  // as many keys as registers hold the scores and the gradients of

template <int D>
struct alignas(kSwizzleBytes) Shared {
  Bf16 q[kTileElements<D, kQueries>], d_out[kTileElements<D, kQueries>];
  Bf16 k[kStages][kTileElements<D, kKeys>], v[kStages][kTileElements<D, kKeys>];
  Ring<kStages> keys, values;
  Turns turns;
  uint64_t queries;
  uint64_t read[kGroups];  // the group's rows of q, for the last time
};
struct Maps {
  TensorMap q, d_out, k, v;
};

using KeyWalk = Walk<kKeys>;

template <int D>
__device__ __forceinline__ void ask(Shared<D>& shared, const Maps& maps, const KeyWalk& walk, Part part) {
  const bool asks = lane_of_thread() == 0;
  if (asks) {
    ptx::mbarrier_arrive_expect(&shared.queries, sizeof shared.q + sizeof shared.d_out);
    ask_for_tile<D, kQueries>(shared.q, maps.q, &shared.queries, part.first, part.head, part.sequence);
    ask_for_tile<D, kQueries>(shared.d_out, maps.d_out, &shared.queries, part.first, part.head, part.sequence);
  }
  Place<kStages> at;
  for (int tile = walk.begin(); tile < walk.tiles.end; tile = walk.after(tile)) {
    if (asks) {
      fill<D, kKeys>(shared.keys, at, shared.k, maps.k, tile, part.kv_head, part.sequence);
      fill<D, kKeys>(shared.values, at, shared.v, maps.v, tile, part.kv_head, part.sequence);
    }
    at.advance();
  }
}

// Of the rows lane_row() + 8 half of a warp; 0 behind the end.
struct Statistics {
  float lse[2], delta[2];
};
__device__ __forceinline__ Statistics load_statistics(const AttentionJob& job, Part part, int query) {
  const float* lse = statistics_at(job.lse, job, part.sequence, part.head);
  const float* delta = statistics_at(job.delta, job, part.sequence, part.head);
  Statistics x;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = query + 8 * half + lane_row();
    x.lse[half] = t < job.length ? lse[t] : 0;
    x.delta[half] = t < job.length ? delta[t] : 0;
  }
  return x;
}

// A tile's scores become weights.
__device__ __forceinline__ void weigh(float (&scores)[1][kKeys / 8][4], const Statistics& of, const AttentionJob& job,
                                      const int32_t* mixed_segments, int query, int tile) {
  hide_keys<kKeys>(scores, job, mixed_segments, query, tile);
  const float scale = job.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[0][n][i] = ptx::exp2(scores[0][n][i] * scale - of.lse[i / 2]);
}
// Gradients of weights become those of scores before they were scaled.
__device__ __forceinline__ void grade(float (&d_weights)[1][kKeys / 8][4], const float (&weights)[1][kKeys / 8][4],
                                      const Statistics& of) {
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) d_weights[0][n][i] = weights[0][n][i] * (d_weights[0][n][i] - of.delta[i / 2]);
}

template <int D>
__device__ __forceinline__ void find_gradient(Shared<D>& shared, const AttentionJob& job, const KeyWalk& walk,
                                              Part part, int group) {
  const int row = group * kGroupRows + warp_of_thread() % 4 * 16, query = part.first + row;
  const Statistics statistics = load_statistics(job, part, query);
  float sums[1][kColumns<D> / 8][4], scores[1][kKeys / 8][4], d_scores[1][kKeys / 8][4];
  uint32_t packed[kKeys / 16][4];
  clear(sums);
  Place<kStages> at;
  ptx::mbarrier_wait(&shared.queries, 0);
  int tile = walk.begin();
  const auto begin_tile = [&] {
    begin_rows<D, kQueries>(scores, shared.q, group, shared.k[at.stage]);
    begin_rows<D, kQueries>(d_scores, shared.d_out, group, shared.v[at.stage]);
  };
  at.wait_full(shared.keys);
  at.wait_full(shared.values);
  begin_tile();
  const int32_t* mixed_segments = walk.mixed_segments(job, part.sequence, tile);
  finish<1>(scores);
  weigh(scores, statistics, job, mixed_segments, query, tile);
  finish<0>(d_scores);
  at.release(shared.values);
  grade(d_scores, scores, statistics);
  pack(packed, d_scores);
  tile = walk.after(tile);
  for (int turn = 0; tile < walk.tiles.end; ++turn) {
    const Place<kStages> before = at;
    at.advance();
    at.wait_full(shared.keys);
    at.wait_full(shared.values);
    shared.turns.take(group, turn);
    begin_tile();
    begin_products<D>(sums, packed, shared.k[before.stage]);
    shared.turns.pass(group);
    mixed_segments = walk.mixed_segments(job, part.sequence, tile);
    finish<2>(scores);
    weigh(scores, statistics, job, mixed_segments, query, tile);
    tile = walk.after(tile);  // a branch, before which ptxas would not put the wait: weights are found beside products
    finish<1>(d_scores);
    at.release(shared.values);
    grade(d_scores, scores, statistics);
    finish<0>(sums);
    before.release(shared.keys);
    pack(packed, d_scores);
  }
  begin_products<D>(sums, packed, shared.k[at.stage]);
  arrive_as_warp(&shared.read[group]);
  finish<0>(sums);

  ptx::mbarrier_wait(&shared.read[group], 0);
  store_group_rows<D, kQueries>(sums, shared.q, row, head_at<Bf16>(job.d_q, job, part.sequence, part.head),
                                job.d_q.stride, part.first, job.length, [&](int) { return job.scale; });
}

template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    attention_backward_q_sm90(const __grid_constant__ Maps maps, AttentionJob job) {
  Shared<D>& shared = swizzled_shared<Shared<D>>();
  if (threadIdx.x == 0) {
    shared.keys.init(1, 4 * kGroups);
    shared.values.init(1, 4 * kGroups);
    shared.turns.init();
    ptx::mbarrier_init(&shared.queries, 1);
    for (uint64_t& barrier : shared.read) ptx::mbarrier_init(&barrier, 4);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  const Part part = part_of_queries<kQueries>(job);
  const KeyWalk walk = walk_of_queries<kQueries, kKeys>(job, part);
  const int group = warp_group_of_thread() - 1;
  if (group < 0) {
    ptx::give_up_registers<kRegistersToAsk>();
    if (warp_of_thread() == 0) ask(shared, maps, walk, part);
  } else {
    ptx::take_registers<kRegistersToMultiply>();
    find_gradient(shared, job, walk, part, group);
  }
}

template <int D>
void launch_backward_q(Stream& stream, const AttentionJob& job) {
  const Maps maps{map_of_heads(job.q, job.heads, job, kQueries), map_of_heads(job.d_out, job.heads, job, kQueries),
                  map_of_heads(job.k, job.kv_heads, job, kKeys), map_of_heads(job.v, job.kv_heads, job, kKeys)};
  CU_FUNC_SMEM((attention_backward_q_sm90<D>), kSwizzledBytes<Shared<D>>);
  CU_LAUNCH((attention_backward_q_sm90<D>), grid_of_queries<kQueries>(job), dim3(kThreads), kSwizzledBytes<Shared<D>>,
            stream_of(stream), maps, job);
}

}  // namespace

void attend_warp_group_grad_q(Stream& stream, const AttentionJob& job) {
  if (job.width == 64) launch_backward_q<64>(stream, job);
  else if (job.width == 96) launch_backward_q<96>(stream, job);
  else launch_backward_q<128>(stream, job);
}

}  // namespace trainer::cuda
