// What attention knows before its tiles: segments of blocks of rows, and for backward the product of each row of d_out
// with that of out.
#include "kernels/cuda/attention_mask.cuh"

namespace trainer::cuda {
namespace {

constexpr int kPrepareThreads = 256;

// A warp per range.
__global__ void __launch_bounds__(kPrepareThreads) segment_ranges(AttentionJob job) {
  const int lane = int(threadIdx.x) % 32, range = (int(blockIdx.x) * kPrepareThreads + int(threadIdx.x)) / 32;
  if (range >= job.range_count) return;
  const int first = range * kRangeRows, end = min(first + kRangeRows, job.length);
  const int32_t* ids = segments_at(job, int(blockIdx.y));
  SegmentRange found{ids[first], ids[first]};
  for (int t = first + lane; t < end; t += 32) found = {min(found.low, ids[t]), max(found.high, ids[t])};
  for (int offset = 16; offset > 0; offset /= 2)
    found = {min(found.low, __shfl_xor_sync(0xffffffffu, found.low, offset)),
             max(found.high, __shfl_xor_sync(0xffffffffu, found.high, offset))};
  if (lane == 0) job.ranges[int64_t(blockIdx.y) * job.range_count + range] = found;
}

// The products of the elements that a lane has of two rows of `width`: single ones, or eight bf16 by one access each.
template <class T>
__device__ __forceinline__ float lane_product(const T* a, const T* b, int width, int lane) {
  float sum = 0;
  for (int d = lane; d < width; d += 32) sum += static_cast<float>(a[d]) * static_cast<float>(b[d]);
  return sum;
}
__device__ __forceinline__ float lane_product(const uint4* a, const uint4* b, int width, int lane) {
  float sum = 0;
  for (int d = lane; d < width / 8; d += 16) {
    const uint4 left = a[d], right = b[d];
    __nv_bfloat162 x[4], y[4];
    memcpy(x, &left, 16);
    memcpy(y, &right, 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 p = __bfloat1622float2(x[i]), q = __bfloat1622float2(y[i]);
      sum += p.x * q.x + p.y * q.y;
    }
  }
  return sum;
}

// kLanes lanes per row of a head. T is what one access reads.
template <class T, class Element, int kLanes>
__global__ void __launch_bounds__(kPrepareThreads) attention_delta(AttentionJob job) {
  const int t = (int(blockIdx.x) * kPrepareThreads + int(threadIdx.x)) / kLanes;
  const int lane = int(threadIdx.x) % kLanes, head = int(blockIdx.y), sequence = int(blockIdx.z);
  const bool there = t < job.length;
  const int64_t row = there ? t : 0;
  const auto* out = head_at<Element>(job.out, job, sequence, head) + row * job.out.stride;
  const auto* d_out = head_at<Element>(job.d_out, job, sequence, head) + row * job.d_out.stride;
  float sum = lane_product(reinterpret_cast<const T*>(out), reinterpret_cast<const T*>(d_out), job.width, lane);
  for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (there && lane == 0) statistics_at(job.delta, job, sequence, head)[t] = sum;
}

template <class T, class Element, int kLanes>
void launch_delta(Stream& stream, const AttentionJob& job) {
  constexpr int kRows = kPrepareThreads / kLanes;
  const dim3 grid(unsigned((job.length + kRows - 1) / kRows), unsigned(job.heads), unsigned(job.batch));
  CU_LAUNCH((attention_delta<T, Element, kLanes>), grid, dim3(kPrepareThreads), 0, stream_of(stream), job);
}

// Rows of whole 16 bytes at multiples of 16 bytes.
bool vectors_fit(const HeadRows& rows, int width) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 8 == 0 && width % 8 == 0;
}

}  // namespace

void find_segment_ranges(Stream& stream, const AttentionJob& job) {
  constexpr int kRanges = kPrepareThreads / 32;
  const dim3 grid(unsigned((job.range_count + kRanges - 1) / kRanges), unsigned(job.batch));
  CU_LAUNCH(segment_ranges, grid, dim3(kPrepareThreads), 0, stream_of(stream), job);
}

void find_delta(Stream& stream, const AttentionJob& job) {
  if (job.dtype == DType::f32) return launch_delta<float, float, 32>(stream, job);
  if (vectors_fit(job.out, job.width) && vectors_fit(job.d_out, job.width))
    return launch_delta<uint4, __nv_bfloat16, 16>(stream, job);
  launch_delta<__nv_bfloat16, __nv_bfloat16, 32>(stream, job);
}

}  // namespace trainer::cuda
