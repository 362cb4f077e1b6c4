// Forward by warp groups: a block has 128 queries, 64 to a group, and goes through their keys 128 at a time with an
// online softmax. A group begins the scores of a tile and, behind them, the sums of the tile before: so the tensor
// cores work while weights are found, those of this group and those of the other (FlashAttention-3, algorithms 1 and
// 2).
#include "kernels/cuda/attention_warp_group.cuh"

namespace trainer::cuda {
namespace {

constexpr int kQueries = kBlockRows, kKeys = 128, kStages = 2;

template <int D>
struct alignas(kSwizzleBytes) Shared {
  Bf16 q[kTileElements<D, kQueries>];
  Bf16 k[kStages][kTileElements<D, kKeys>], v[kStages][kTileElements<D, kKeys>];
  Ring<kStages> keys, values;
  Turns turns;
  uint64_t queries;
  uint64_t read[kGroups];  // the group's rows of q, for the last time
};
struct Maps {
  TensorMap q, k, v;
};

using KeyWalk = Walk<kKeys>;

template <int D>
__device__ __forceinline__ void ask(Shared<D>& shared, const Maps& maps, const KeyWalk& walk, Part part) {
  const bool asks = lane_of_thread() == 0;
  if (asks) {
    ptx::mbarrier_arrive_expect(&shared.queries, sizeof shared.q);
    ask_for_tile<D, kQueries>(shared.q, maps.q, &shared.queries, part.first, part.head, part.sequence);
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

// A tile's scores become weights.
__device__ __forceinline__ void weigh(float (&scores)[1][kKeys / 8][4], Softmax<1>& soft, float (&shrink)[1][2],
                                      const AttentionJob& job, const int32_t* mixed_segments, int query, int tile) {
  hide_keys<kKeys>(scores, job, mixed_segments, query, tile);
  soften(scores, soft, shrink, job.scale * kLog2E);
}

template <int D>
__device__ __forceinline__ void attend(Shared<D>& shared, const AttentionJob& job, const KeyWalk& walk, Part part,
                                       int group) {
  const int row = group * kGroupRows + warp_of_thread() % 4 * 16, query = part.first + row;
  Softmax<1> soft;
  float sums[1][kColumns<D> / 8][4], scores[1][kKeys / 8][4], shrink[1][2];
  uint32_t weights[kKeys / 16][4];
  soft.clear();
  clear(sums);
  Place<kStages> at;
  int tile = walk.begin();
  ptx::mbarrier_wait(&shared.queries, 0);
  at.wait_full(shared.keys);
  begin_rows<D, kQueries>(scores, shared.q, group, shared.k[at.stage]);
  const int32_t* mixed_segments = walk.mixed_segments(job, part.sequence, tile);
  finish<0>(scores);
  at.release(shared.keys);
  weigh(scores, soft, shrink, job, mixed_segments, query, tile);
  pack(weights, scores);
  tile = walk.after(tile);
  for (int turn = 0; tile < walk.tiles.end; ++turn) {
    const Place<kStages> before = at;
    at.advance();
    at.wait_full(shared.keys);
    before.wait_full(shared.values);
    shared.turns.take(group, turn);
    begin_rows<D, kQueries>(scores, shared.q, group, shared.k[at.stage]);
    begin_products<D>(sums, weights, shared.v[before.stage]);
    shared.turns.pass(group);
    mixed_segments = walk.mixed_segments(job, part.sequence, tile);
    finish<1>(scores);
    at.release(shared.keys);
    weigh(scores, soft, shrink, job, mixed_segments, query, tile);
    tile = walk.after(tile);  // a branch, before which ptxas would not put the wait: weights are found beside products
    finish<0>(sums);
    before.release(shared.values);
    scale_rows(sums, shrink);
    pack(weights, scores);
  }
  at.wait_full(shared.values);
  begin_products<D>(sums, weights, shared.v[at.stage]);
  arrive_as_warp(&shared.read[group]);
  finish<0>(sums);

  ptx::mbarrier_wait(&shared.read[group], 0);
  float* lse = statistics_at(job.lse, job, part.sequence, part.head);
  store_group_rows<D, kQueries>(sums, shared.q, row, head_at<Bf16>(job.out, job, part.sequence, part.head),
                                job.out.stride, part.first, job.length, [&](int half) {
                                  const float total = row_sum(soft.total[0][half]);
                                  const int t = query + 8 * half + lane_row();
                                  if (t < job.length && lane_column() == 0)
                                    lse[t] = soft.top[0][half] * (job.scale * kLog2E) + log2f(total);
                                  return 1 / total;
                                });
}

template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    attention_forward_sm90(const __grid_constant__ Maps maps, AttentionJob job) {
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
    attend(shared, job, walk, part, group);
  }
}

template <int D>
void launch_forward(Stream& stream, const AttentionJob& job) {
  const Maps maps{map_of_heads(job.q, job.heads, job, kQueries), map_of_heads(job.k, job.kv_heads, job, kKeys),
                  map_of_heads(job.v, job.kv_heads, job, kKeys)};
  CU_FUNC_SMEM((attention_forward_sm90<D>), kSwizzledBytes<Shared<D>>);
  CU_LAUNCH((attention_forward_sm90<D>), grid_of_queries<kQueries>(job), dim3(kThreads), kSwizzledBytes<Shared<D>>,
            stream_of(stream), maps, job);
}

}  // namespace

void attend_warp_group(Stream& stream, const AttentionJob& job) {
  if (job.width == 64) launch_forward<64>(stream, job);
  else if (job.width == 96) launch_forward<96>(stream, job);
  else launch_forward<128>(stream, job);
}

}  // namespace trainer::cuda
