// One query per sequence and head against a cache: each warp of a block takes every eighth key with an online softmax
// of its own, and the warps' sums are brought together at the end, in order.
#include "kernels/cuda/attention_job.h"
#include "kernels/cuda/common.cuh"

namespace trainer::cuda {
namespace {

constexpr int kDecodeWarps = 8;
constexpr int kMaxWidth = 256, kLaneElements = kMaxWidth / 32;  // lane l has the elements l + 32 i of a head

struct Decoded {
  float top = -INFINITY, total = 0;
  float sums[kLaneElements] = {};
};

template <class T>
__device__ __forceinline__ Decoded decode_keys(const DecodeJob& job, const T* q, const T* keys, const T* values,
                                               int warp, int lane) {
  const int64_t row = int64_t(job.kv_heads) * job.width;
  float query[kLaneElements];
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i)
    query[i] = lane + 32 * i < job.width ? static_cast<float>(q[lane + 32 * i]) * (job.scale * kLog2E) : 0.0f;
  Decoded found;
  for (int key = job.first + warp; key < job.length; key += kDecodeWarps) {
    float score = 0;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i)
      if (lane + 32 * i < job.width) score += query[i] * static_cast<float>(keys[key * row + lane + 32 * i]);
    for (int offset = 16; offset > 0; offset /= 2) score += __shfl_xor_sync(0xffffffffu, score, offset);
    const float top = fmaxf(found.top, score), factor = exp2f(found.top - top), weight = exp2f(score - top);
    found.top = top;
    found.total = found.total * factor + weight;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i)
      if (lane + 32 * i < job.width)
        found.sums[i] = found.sums[i] * factor + weight * static_cast<float>(values[key * row + lane + 32 * i]);
  }
  return found;
}

template <class T>
__global__ void __launch_bounds__(32 * kDecodeWarps) attention_decode(DecodeJob job) {
  CU_SHARED(float, sums, [kDecodeWarps][kMaxWidth]);
  CU_SHARED(float, tops, [kDecodeWarps]);
  CU_SHARED(float, totals, [kDecodeWarps]);
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int head = int(blockIdx.x), sequence = int(blockIdx.y), kv_head = head / (job.heads / job.kv_heads);
  const T* q = reinterpret_cast<const T*>(job.q) + sequence * job.q_stride + head * job.width;
  const T* keys = reinterpret_cast<const T*>(job.keys) + sequence * job.keys_stride + kv_head * job.width;
  const T* values = reinterpret_cast<const T*>(job.values) + sequence * job.values_stride + kv_head * job.width;
  const Decoded found = decode_keys(job, q, keys, values, warp, lane);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) sums[warp][lane + 32 * i] = found.sums[i];
  if (lane == 0) {
    tops[warp] = found.top;
    totals[warp] = found.total;
  }
  __syncthreads();

  const int d = int(threadIdx.x);
  if (d >= job.width) return;
  float top = -INFINITY, total = 0, sum = 0;
  for (int w = 0; w < kDecodeWarps; ++w) top = fmaxf(top, tops[w]);
  if (top == -INFINITY) top = 0;  // no score is a number
  for (int w = 0; w < kDecodeWarps; ++w) {
    const float factor = exp2f(tops[w] - top);  // 0 for a warp without keys
    total += factor * totals[w];
    sum += factor * sums[w][d];
  }
  reinterpret_cast<T*>(job.out)[sequence * job.out_stride + head * job.width + d] = static_cast<T>(sum / total);
}

}  // namespace

void attend_decode(Stream& stream, const DecodeJob& job, DType dtype) {
  static_assert(32 * kDecodeWarps >= kMaxWidth);
  const dim3 grid(unsigned(job.heads), unsigned(job.batch));
  if (dtype == DType::f32)
    CU_LAUNCH((attention_decode<float>), grid, dim3(32 * kDecodeWarps), 0, stream_of(stream), job);
  else CU_LAUNCH((attention_decode<__nv_bfloat16>), grid, dim3(32 * kDecodeWarps), 0, stream_of(stream), job);
}

}  // namespace trainer::cuda
