// d_k and d_v by warp groups: a block has 128 keys, 64 to a group, and goes through the queries that see them, head
// after head of the group of heads, so that every sum has one order. Scores stand transposed, keys in rows: weights and
// their gradients go from the accumulators of one product straight into the operands of the next.
#include "kernels/cuda/attention_warp_group.cuh"

namespace trainer::cuda {
namespace {

constexpr int kKeys = kBlockRows;
constexpr int kQueries = 64, kStages = 2;  // as many queries as registers hold the weights and the gradients of

template <int D>
struct alignas(kSwizzleBytes) Shared {
  Bf16 k[kTileElements<D, kKeys>], v[kTileElements<D, kKeys>];
  Bf16 q[kStages][kTileElements<D, kQueries>], d_out[kStages][kTileElements<D, kQueries>];
  float lse[kStages][kQueries], delta[kStages][kQueries];
  Ring<kStages> queries;
  uint64_t keys;
  uint64_t read[kGroups];  // the group's rows of k and v, for the last time
};
struct Maps {
  TensorMap q, d_out, k, v;
};
using QueryWalk = Walk<kQueries>;

// A figure of each of the tile's queries, a few to a lane; 0 behind the end.
struct Statistics {
  float of[kQueries / 32];

  __device__ __forceinline__ Statistics(const float* all, int first, int length) {
#pragma unroll
    for (int i = 0; i < kQueries / 32; ++i) {
      const int query = first + lane_of_thread() + 32 * i;
      of[i] = query < length ? all[query] : 0;
    }
  }
  __device__ __forceinline__ void store(float (&to)[kQueries]) const {
#pragma unroll
    for (int i = 0; i < kQueries / 32; ++i) to[lane_of_thread() + 32 * i] = of[i];
  }
};

template <int D>
__device__ __forceinline__ void ask(Shared<D>& shared, const Maps& maps, const AttentionJob& job, const QueryWalk& walk,
                                    Part part) {
  const bool asks = lane_of_thread() == 0;
  if (asks) {
    ptx::mbarrier_arrive_expect(&shared.keys, sizeof shared.k + sizeof shared.v);
    ask_for_tile<D, kKeys>(shared.k, maps.k, &shared.keys, part.first, part.kv_head, part.sequence);
    ask_for_tile<D, kKeys>(shared.v, maps.v, &shared.keys, part.first, part.kv_head, part.sequence);
  }
  Place<kStages> at;
  const int heads = job.heads / job.kv_heads;
  for (int head = part.head; head < part.head + heads; ++head)
    for (int tile = walk.begin(); tile < walk.tiles.end; tile = walk.after(tile)) {
      uint64_t* full = &shared.queries.full[at.stage];
      // On their way while the place is still being read.
      const Statistics lse(statistics_at(job.lse, job, part.sequence, head), tile * kQueries, job.length);
      const Statistics delta(statistics_at(job.delta, job, part.sequence, head), tile * kQueries, job.length);
      at.wait_empty(shared.queries);
      if (asks) {
        ptx::mbarrier_arrive_expect(full, sizeof shared.q[0] + sizeof shared.d_out[0]);
        ask_for_tile<D, kQueries>(shared.q[at.stage], maps.q, full, tile * kQueries, head, part.sequence);
        ask_for_tile<D, kQueries>(shared.d_out[at.stage], maps.d_out, full, tile * kQueries, head, part.sequence);
      }
      lse.store(shared.lse[at.stage]);
      delta.store(shared.delta[at.stage]);
      ptx::mbarrier_arrive(full);
      at.advance();
    }
}

// A tile's scores become weights; `lse` is of its queries.
__device__ __forceinline__ void weigh(float (&scores)[1][kQueries / 8][4], const float (&lse)[kQueries],
                                      const AttentionJob& job, const int32_t* mixed_segments, int key, int tile) {
  if (mixed_segments || !all_in_sight(job, tile * kQueries, kQueries, key, 16))
    hide<true>(scores, job, mixed_segments, key, tile * kQueries);
  const float scale = job.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < kQueries / 8; ++n) {
    const float2 of = *reinterpret_cast<const float2*>(&lse[8 * n + lane_column()]);
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[0][n][i] = ptx::exp2(scores[0][n][i] * scale - (i % 2 ? of.y : of.x));
  }
}
// Gradients of weights become those of scores before they were scaled.
__device__ __forceinline__ void grade(float (&d_weights)[1][kQueries / 8][4],
                                      const float (&weights)[1][kQueries / 8][4], const float (&delta)[kQueries]) {
#pragma unroll
  for (int n = 0; n < kQueries / 8; ++n) {
    const float2 of = *reinterpret_cast<const float2*>(&delta[8 * n + lane_column()]);
#pragma unroll
    for (int i = 0; i < 4; ++i) d_weights[0][n][i] = weights[0][n][i] * (d_weights[0][n][i] - (i % 2 ? of.y : of.x));
  }
}

template <int D>
__device__ __forceinline__ void find_gradients(Shared<D>& shared, const AttentionJob& job, const QueryWalk& walk,
                                               Part part, int group) {
  const int row = group * kGroupRows + warp_of_thread() % 4 * 16, key = part.first + row;
  float d_k[1][kColumns<D> / 8][4], d_v[1][kColumns<D> / 8][4];
  float weights[1][kQueries / 8][4], d_weights[1][kQueries / 8][4];
  uint32_t packed[kQueries / 16][4], d_packed[kQueries / 16][4];
  clear(d_k);
  clear(d_v);
  Place<kStages> at;
  ptx::mbarrier_wait(&shared.keys, 0);
  for (int head = job.heads / job.kv_heads; head > 0; --head)
    for (int tile = walk.begin(); tile < walk.tiles.end; tile = walk.after(tile)) {
      at.wait_full(shared.queries);
      begin_rows<D, kKeys>(weights, shared.k, group, shared.q[at.stage]);
      begin_rows<D, kKeys>(d_weights, shared.v, group, shared.d_out[at.stage]);
      const int32_t* mixed_segments = walk.mixed_segments(job, part.sequence, tile);
      finish<1>(weights);
      weigh(weights, shared.lse[at.stage], job, mixed_segments, key, tile);
      pack(packed, weights);
      begin_products<D>(d_v, packed, shared.d_out[at.stage]);
      finish<1>(d_weights);
      grade(d_weights, weights, shared.delta[at.stage]);
      pack(d_packed, d_weights);
      begin_products<D>(d_k, d_packed, shared.q[at.stage]);
      finish<1>(d_v);
      finish<0>(d_k);
      at.release(shared.queries);
      at.advance();
    }
  arrive_as_warp(&shared.read[group]);
  ptx::mbarrier_wait(&shared.read[group], 0);
  store_group_rows<D, kKeys>(d_k, shared.k, row, head_at<Bf16>(job.d_k, job, part.sequence, part.kv_head),
                             job.d_k.stride, part.first, job.length, [&](int) { return job.scale; });
  store_group_rows<D, kKeys>(d_v, shared.v, row, head_at<Bf16>(job.d_v, job, part.sequence, part.kv_head),
                             job.d_v.stride, part.first, job.length, [](int) { return 1.0f; });
}

template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    attention_backward_kv_sm90(const __grid_constant__ Maps maps, AttentionJob job) {
  Shared<D>& shared = swizzled_shared<Shared<D>>();
  if (threadIdx.x == 0) {
    shared.queries.init(1 + 32, 4 * kGroups);
    ptx::mbarrier_init(&shared.keys, 1);
    for (uint64_t& barrier : shared.read) ptx::mbarrier_init(&barrier, 4);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  const int kv_head = int(blockIdx.y), first = int(blockIdx.x) * kKeys, sequence = int(blockIdx.z);
  const Part part{first, kv_head * (job.heads / job.kv_heads), kv_head, sequence};
  const SegmentRange* ranges = ranges_at(job, sequence);
  const QueryWalk walk{ranges, range_over(ranges, first, kKeys, job.length), query_tiles<kQueries>(job, first, kKeys),
                       job.length};
  const int group = warp_group_of_thread() - 1;
  if (group < 0) {
    ptx::give_up_registers<kRegistersToAsk>();
    if (warp_of_thread() == 0) ask(shared, maps, job, walk, part);
  } else {
    ptx::take_registers<kRegistersToMultiply>();
    find_gradients(shared, job, walk, part, group);
  }
}

template <int D>
void launch_backward_kv(Stream& stream, const AttentionJob& job) {
  const Maps maps{map_of_heads(job.q, job.heads, job, kQueries), map_of_heads(job.d_out, job.heads, job, kQueries),
                  map_of_heads(job.k, job.kv_heads, job, kKeys), map_of_heads(job.v, job.kv_heads, job, kKeys)};
  const dim3 grid(unsigned((job.length + kKeys - 1) / kKeys), unsigned(job.kv_heads), unsigned(job.batch));
  CU_FUNC_SMEM((attention_backward_kv_sm90<D>), kSwizzledBytes<Shared<D>>);
  CU_LAUNCH((attention_backward_kv_sm90<D>), grid, dim3(kThreads), kSwizzledBytes<Shared<D>>, stream_of(stream), maps,
            job);
}

}  // namespace

void attend_warp_group_grad_kv(Stream& stream, const AttentionJob& job) {
  if (job.width == 64) launch_backward_kv<64>(stream, job);
  else if (job.width == 96) launch_backward_kv<96>(stream, job);
  else launch_backward_kv<128>(stream, job);
}

}  // namespace trainer::cuda
