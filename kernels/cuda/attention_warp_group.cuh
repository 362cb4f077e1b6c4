// Tiles of bf16 that bulk copies bring, rings of them, and products of them by warp groups: what the kernels of
// attention for sm_90a are made of (Shah et al. 2024, "FlashAttention-3").
//
// The first warp group of a block asks for tiles and does nothing else; each of the others has 64 rows of the block's
// own tile, 16 to a warp, and accumulators as attention_tile.cuh describes them (wgmma's are the same). A tile has its
// rows in columns of 64 that lie one behind the other, swizzled as wgmma wants them. A head of 96 has zeros in the last
// 32 of its 128 columns.
#pragma once
#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/tensor_map.h"
#include "ptx_sm90.h"

namespace trainer::cuda {

inline constexpr int kWarpGroup = 128, kGroupRows = 64;
inline constexpr int kGroups = 2, kThreads = (1 + kGroups) * kWarpGroup, kBlockRows = kGroups * kGroupRows;
// Of the 65536 of a multiprocessor; ptxas keeps to these numbers behind the instructions that change them.
inline constexpr int kRegistersAtFirst = 65536 / kThreads / 8 * 8, kRegistersToAsk = 24, kRegistersToMultiply = 240;
static_assert(kRegistersToAsk + kGroups * kRegistersToMultiply <= (1 + kGroups) * kRegistersAtFirst);

template <int D>
constexpr int kColumns = (D + kBoxColumns - 1) / kBoxColumns* kBoxColumns;
template <int D, int kRows>
constexpr int kTileElements = kColumns<D>* kRows;
inline constexpr unsigned kRowBytes = kBoxColumns * sizeof(Bf16), kSwizzleBytes = 8 * kRowBytes;

// Uniform in a warp, and known to be.
__device__ __forceinline__ int warp_group_of_thread() {
  return __shfl_sync(0xffffffffu, int(threadIdx.x) / kWarpGroup, 0);
}

// The block's dynamic shared memory, at a multiple of the swizzle's period; launches add that to the size.
template <class T>
__device__ __forceinline__ T& swizzled_shared() {
  static_assert(alignof(T) == kSwizzleBytes);
  char* all = cu_dyn_shared<char>();
  return *reinterpret_cast<T*>(all + (0 - reinterpret_cast<uintptr_t>(all)) % kSwizzleBytes);
}
template <class T>
constexpr size_t kSwizzledBytes = sizeof(T) + kSwizzleBytes;

// One arrival for the warp, behind all that its lanes have done.
__device__ __forceinline__ void arrive_as_warp(uint64_t* barrier) {
  __syncwarp();
  if (lane_of_thread() == 0) ptx::mbarrier_arrive(barrier);
}

// Places that one warp fills and others empty, in turn.
template <int kStages>
struct Ring {
  uint64_t full[kStages], empty[kStages];

  // Arrivals that fill a place, besides its bytes, and that empty it.
  __device__ __forceinline__ void init(unsigned fillers, unsigned readers) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&full[i], fillers);
      ptx::mbarrier_init(&empty[i], readers);
    }
  }
};
// Where a warp is in a ring.
template <int kStages>
struct Place {
  int stage = 0;
  unsigned round = 0;  // its parity

  __device__ __forceinline__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    round ^= 1;
  }
  __device__ __forceinline__ void wait_full(Ring<kStages>& ring) const { ptx::mbarrier_wait(&ring.full[stage], round); }
  // In the first round places are empty: a fresh barrier's phase before the first counts as over.
  __device__ __forceinline__ void wait_empty(Ring<kStages>& ring) const {
    ptx::mbarrier_wait(&ring.empty[stage], round ^ 1);
  }
  __device__ __forceinline__ void release(Ring<kStages>& ring) const { arrive_as_warp(&ring.empty[stage]); }
};

// Warp groups that issue their products one after the other, so that one multiplies while another finds its weights.
struct Turns {
  uint64_t next[kGroups];

  __device__ __forceinline__ void init() {
    for (uint64_t& barrier : next) ptx::mbarrier_init(&barrier, kWarpGroup / 32);
  }
  // The group's turn number `count`; the first group's first one is free.
  __device__ __forceinline__ void take(int group, int count) {
    ptx::mbarrier_wait(&next[group], unsigned(count + (group == 0)) & 1);
  }
  __device__ __forceinline__ void pass(int group) { arrive_as_warp(&next[group + 1 == kGroups ? 0 : group + 1]); }
};

// Tiles of kRows rows that a block's own rows meet.
template <int kRows>
struct Walk {
  const SegmentRange* ranges;
  SegmentRange own;
  Tiles tiles;
  int length;

  // Whole warps call these.
  __device__ __forceinline__ int begin() const { return next_tile<kRows>(ranges, own, tiles.begin, tiles.end, length); }
  __device__ __forceinline__ int after(int tile) const {
    return next_tile<kRows>(ranges, own, tile + 1, tiles.end, length);
  }
  // The sequence's segments, where the tile and the block's own rows are of several; nullptr: they hide nothing. Asked
  // for while products are under way, for it waits for memory.
  __device__ __forceinline__ const int32_t* mixed_segments(const AttentionJob& job, int sequence, int tile) const {
    return one_segment_in<kRows>(ranges, own, tile * kRows, length) ? nullptr : segments_at(job, sequence);
  }
};

// The rows that a block has, of one head.
struct Part {
  int first, head, kv_head, sequence;
};
// kQueries of a head to a block, as grid_of_queries lays them out; late ones see more keys, so these blocks come first.
template <int kQueries>
__device__ __forceinline__ Part part_of_queries(const AttentionJob& job) {
  const int head = int(blockIdx.y);
  return {int(gridDim.x - 1 - blockIdx.x) * kQueries, head, head / (job.heads / job.kv_heads), int(blockIdx.z)};
}
template <int kQueries>
dim3 grid_of_queries(const AttentionJob& job) {
  return dim3(unsigned((job.length + kQueries - 1) / kQueries), unsigned(job.heads), unsigned(job.batch));
}
template <int kQueries, int kKeys>
__device__ __forceinline__ Walk<kKeys> walk_of_queries(const AttentionJob& job, Part part) {
  const SegmentRange* ranges = ranges_at(job, part.sequence);
  return {ranges, range_over(ranges, part.first, kQueries, job.length), key_tiles<kKeys>(job, part.first, kQueries),
          job.length};
}

// Hides what the mask hides in the scores of the warp's queries, from `query` on, for a tile of keys.
template <int kKeys>
__device__ __forceinline__ void hide_keys(float (&scores)[1][kKeys / 8][4], const AttentionJob& job,
                                          const int32_t* mixed_segments, int query, int tile) {
  if (mixed_segments || !all_in_sight(job, query, 16, tile * kKeys, kKeys))
    hide<false>(scores, job, mixed_segments, query, tile * kKeys);
}

// Asks for a tile of a head; `barrier` counts kTileElements<D, kRows> elements.
template <int D, int kRows>
__device__ __forceinline__ void ask_for_tile(Bf16* tile, const TensorMap& map, uint64_t* barrier, int first, int head,
                                             int sequence) {
#pragma unroll
  for (int column = 0; column < kColumns<D>; column += kBoxColumns)
    ptx::tile_load_4d(tile + column * kRows, &map, barrier, column, head, first, sequence);
}

// One thread fills a place of a ring of tiles when it is empty.
template <int D, int kRows, int kStages>
__device__ __forceinline__ void fill(Ring<kStages>& ring, Place<kStages> at,
                                     Bf16 (&tiles)[kStages][kTileElements<D, kRows>], const TensorMap& map, int tile,
                                     int head, int sequence) {
  uint64_t* full = &ring.full[at.stage];
  at.wait_empty(ring);
  ptx::mbarrier_arrive_expect(full, sizeof tiles[0]);
  ask_for_tile<D, kRows>(tiles[at.stage], map, full, tile * kRows, head, sequence);
}

// Offset of the eight elements `chunk` of a row, in a tile of kRows rows.
template <int kRows>
struct SwizzledLayout {
  static __device__ __forceinline__ int at(int row, int chunk) {
    return (chunk / 8 * kRows + row) * kBoxColumns + (chunk % 8 ^ row % 8) * 8;
  }
};

template <int kN>
__device__ __forceinline__ float (&flat(float (&x)[1][kN][4]))[4 * kN] {
  return reinterpret_cast<float(&)[4 * kN]>(x);
}

// Begins dots = the group's rows of a, a tile of kARows, times the rows of b.
template <int D, int kARows, int kN>
__device__ __forceinline__ void begin_rows(float (&dots)[1][kN][4], const Bf16* a, int group, const Bf16* b) {
  const uint64_t left = ptx::wgmma_descriptor(a + group * kGroupRows * kBoxColumns, 16, kSwizzleBytes);
  const uint64_t right = ptx::wgmma_descriptor(b, 16, kSwizzleBytes);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    const unsigned box = unsigned(k) / 4 * kRowBytes, step = unsigned(k) % 4 * 32;
    ptx::wgmma_bf16<8 * kN>(flat(dots), ptx::wgmma_later(left, box * kARows + step),
                            ptx::wgmma_later(right, box * (8 * kN) + step), k > 0);
  }
  ptx::wgmma_commit();
}

// Begins sums += weights times b, which has a row for each of their columns.
template <int D, int kK>
__device__ __forceinline__ void begin_products(float (&sums)[1][kColumns<D> / 8][4], const uint32_t (&weights)[kK][4],
                                               const Bf16* b) {
  const uint64_t right = ptx::wgmma_descriptor(b, 16 * kK * kRowBytes, kSwizzleBytes);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kK; ++k)
    ptx::wgmma_bf16<kColumns<D>, true>(flat(sums), weights[k], ptx::wgmma_later(right, unsigned(k) * 2 * kSwizzleBytes),
                                       true);
  ptx::wgmma_commit();
}

// Until all but the newest kLater begun products are over; `x` are the sums of the newest that is.
template <int kLater, int kN>
__device__ __forceinline__ void finish(float (&x)[1][kN][4]) {
  ptx::wgmma_wait<kLater>();
  ptx::wgmma_settle(flat(x));
}

// Writes the warp's rows, the first D columns of them times `factor(half)`, by way of its rows of `tile`, which nothing
// reads any more.
template <int D, int kRows, int kN, class Factor>
__device__ __forceinline__ void store_group_rows(float (&x)[1][kN][4], Bf16* tile, int row, Bf16* head, int64_t stride,
                                                 int first, int length, Factor factor) {
  static_assert(kN >= D / 8);
  const float factors[1][2] = {{factor(0), factor(1)}};
  scale_rows(x, factors);
#pragma unroll
  for (int n = 0; n < D / 8; n += 2) {
    uint32_t packed[4];
    pack_columns(packed, x[0], n);
    ptx::stmatrix_x4(tile + SwizzledLayout<kRows>::at(row + lane_of_thread() % 16, n + lane_of_thread() / 16), packed);
  }
  write_rows<D, SwizzledLayout<kRows>, 1>(tile, row, head, stride, first, length);
}

template <int kN>
__device__ __forceinline__ void pack(uint32_t (&packed)[kN / 2][4], const float (&x)[1][kN][4]) {
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) pack_columns(packed[k], x[0], 2 * k);
}

}  // namespace trainer::cuda
