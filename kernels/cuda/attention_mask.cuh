// Who sees whom: which tiles of keys meet which tiles of queries.
#pragma once
#include "kernels/cuda/attention_job.h"
#include "kernels/cuda/common.cuh"

namespace trainer::cuda {

// Row 0 of a head of a sequence.
template <class T>
__device__ __forceinline__ T* head_at(const HeadRows& rows, const AttentionJob& job, int sequence, int head) {
  return reinterpret_cast<T*>(rows.data) + (int64_t(sequence) * job.length * rows.stride + int64_t(head) * job.width);
}
// lse or delta of a head of a sequence.
__device__ __forceinline__ float* statistics_at(float* of, const AttentionJob& job, int sequence, int head) {
  return of + (int64_t(sequence) * job.heads + head) * job.length;
}
__device__ __forceinline__ const int32_t* segments_at(const AttentionJob& job, int sequence) {
  return job.segments ? job.segments + int64_t(sequence) * job.length : nullptr;
}
__device__ __forceinline__ const SegmentRange* ranges_at(const AttentionJob& job, int sequence) {
  return job.segments ? job.ranges + int64_t(sequence) * job.range_count : nullptr;
}

// Tiles [begin, end) that the mask's positions leave.
struct Tiles {
  int begin, end;
};
// Of kKeys keys, for the queries [first, first + rows).
template <int kKeys>
__device__ __forceinline__ Tiles key_tiles(const AttentionJob& job, int first, int rows) {
  return {max(0, first - job.window + 1) / kKeys, (min(first + rows, job.length) + kKeys - 1) / kKeys};
}
// Of kQueries queries, for the keys [first, first + rows).
template <int kQueries>
__device__ __forceinline__ Tiles query_tiles(const AttentionJob& job, int first, int rows) {
  return {first / kQueries, (min(first + rows - 1 + job.window, job.length) + kQueries - 1) / kQueries};
}

// Segments of rows [first, first + rows); of rows around them too where these are parts of a range.
__device__ __forceinline__ SegmentRange range_over(const SegmentRange* ranges, int first, int rows, int length) {
  if (!ranges) return {0, 0};
  SegmentRange all = ranges[first / kRangeRows];
  for (int i = first / kRangeRows + 1; i * kRangeRows < min(first + rows, length); ++i)
    all = {min(all.low, ranges[i].low), max(all.high, ranges[i].high)};
  return all;
}

// The first tile of kRows rows in [tile, end) that has segments in common with `own`; `end` if none has. Whole warps
// call.
template <int kRows>
__device__ __forceinline__ int next_tile(const SegmentRange* ranges, SegmentRange own, int tile, int end, int length) {
  static_assert(kRangeRows % kRows == 0 || kRows % kRangeRows == 0);
  if (!ranges) return tile;
  for (; tile < end; tile += 32) {
    const int mine = tile + int(threadIdx.x % 32);
    bool meets = false;
    if (mine < end) {
      const SegmentRange other = range_over(ranges, mine * kRows, kRows, length);
      meets = other.low <= own.high && own.low <= other.high;
    }
    const unsigned seen = __ballot_sync(0xffffffffu, meets);
    if (seen) return tile + __ffs(int(seen)) - 1;
  }
  return end;
}

// Whether all of `own` and all of the tile of kRows rows from `first` on are of one segment.
template <int kRows>
__device__ __forceinline__ bool one_segment_in(const SegmentRange* ranges, SegmentRange own, int first, int length) {
  if (!ranges) return true;
  const SegmentRange other = range_over(ranges, first, kRows, length);
  return own.low == own.high && other.low == own.low && other.high == own.low;
}

// Whether the positions alone leave query `q` key `k`. False for queries behind the end.
__device__ __forceinline__ bool in_sight(const AttentionJob& job, int q, int k) {
  return k <= q && q - k < job.window && q < job.length;
}
// Whether they leave all of [q, q + queries) all of [k, k + keys), or any of them any.
__device__ __forceinline__ bool all_in_sight(const AttentionJob& job, int q, int queries, int k, int keys) {
  return k + keys - 1 <= q && q + queries - 1 - k < job.window && q + queries <= job.length;
}
__device__ __forceinline__ bool any_in_sight(const AttentionJob& job, int q, int queries, int k, int keys) {
  return k <= q + queries - 1 && q - (k + keys - 1) < job.window && q < job.length;
}

}  // namespace trainer::cuda
