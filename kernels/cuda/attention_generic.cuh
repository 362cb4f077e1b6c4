// Tiles of f32 in shared memory and products of them by 128 threads: what the generic kernels of attention are made of.
// Threads stand as 8 x 16: thread (y, x) has the rows y + 8 i and the columns x + 16 j of every result.
#pragma once
#include "kernels/cuda/attention_mask.cuh"

namespace trainer::cuda {

inline constexpr int kGenericThreads = 128;
inline constexpr int kGenericNarrow =
    96;  // the widest head with tiles of 32 rows, else 16: shared memory ends at 99 KiB

// A row is an odd number of floats: rows of a column lie in different banks.
__host__ __device__ constexpr int pitch_of(int width) { return width | 1; }

__device__ __forceinline__ int thread_y() { return int(threadIdx.x) / 16; }
__device__ __forceinline__ int thread_x() { return int(threadIdx.x) % 16; }

// A head of a sequence, of f32 or bf16: kernels are not compiled twice for what a load can tell.
struct Head {
  std::byte* data;
  int64_t stride;
  bool is_f32;
  __device__ __forceinline__ float load(int row, int column) const {
    const int64_t at = row * stride + column;
    return is_f32 ? reinterpret_cast<const float*>(data)[at]
                  : __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(data)[at]);
  }
  __device__ __forceinline__ void store(int row, int column, float x) const {
    const int64_t at = row * stride + column;
    if (is_f32) reinterpret_cast<float*>(data)[at] = x;
    else reinterpret_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(x);
  }
};
__device__ __forceinline__ Head head_of(const HeadRows& rows, const AttentionJob& job, int sequence, int head) {
  const bool is_f32 = job.dtype == DType::f32;
  std::byte* data = is_f32 ? reinterpret_cast<std::byte*>(head_at<float>(rows, job, sequence, head))
                           : reinterpret_cast<std::byte*>(head_at<__nv_bfloat16>(rows, job, sequence, head));
  return {data, rows.stride, is_f32};
}

// Rows [first, first + kTile) of a head as f32; zeros behind the length.
template <int kTile>
__device__ __forceinline__ void load_tile(float* tile, const Head& head, int first, const AttentionJob& job) {
  const int pitch = pitch_of(job.width);
  for (int row = int(threadIdx.x) / 32; row < kTile; row += kGenericThreads / 32)
    for (int d = int(threadIdx.x) % 32; d < job.width; d += 32)
      tile[row * pitch + d] = first + row < job.length ? head.load(first + row, d) : 0.0f;
}

// dots[i][j]: row y + 8 i of a times row x + 16 j of b.
template <int kTile>
__device__ __forceinline__ void multiply_rows(float (&dots)[kTile / 8][kTile / 16], const float* a, const float* b,
                                              int width) {
  const int pitch = pitch_of(width);
  a += thread_y() * pitch;
  b += thread_x() * pitch;
  for (auto& row : dots)
    for (float& x : row) x = 0;
  for (int d = 0; d < width; ++d) {
    float left[kTile / 8], right[kTile / 16];
#pragma unroll
    for (int i = 0; i < kTile / 8; ++i) left[i] = a[8 * i * pitch + d];
#pragma unroll
    for (int j = 0; j < kTile / 16; ++j) right[j] = b[16 * j * pitch + d];
#pragma unroll
    for (int i = 0; i < kTile / 8; ++i)
#pragma unroll
      for (int j = 0; j < kTile / 16; ++j) dots[i][j] += left[i] * right[j];
  }
}

// sums[r] = sums[r] * keep(r) + sum over k < kTile of weight(r, k) * b[k]: rows of `width`. A thread comes back to the
// sums that it wrote, and to no others.
template <int kTile, class Keep, class Weight>
__device__ __forceinline__ void add_products(float* sums, const float* b, int width, Keep keep, Weight weight) {
  const int pitch = pitch_of(width);
  for (int column = thread_x(); column < width; column += 64) {
    float part[kTile / 8][4] = {};
    for (int k = 0; k < kTile; ++k) {
      float left[kTile / 8], right[4];
#pragma unroll
      for (int i = 0; i < kTile / 8; ++i) left[i] = weight(thread_y() + 8 * i, k);
#pragma unroll
      for (int j = 0; j < 4; ++j) right[j] = b[k * pitch + min(column + 16 * j, width - 1)];
#pragma unroll
      for (int i = 0; i < kTile / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) part[i][j] += left[i] * right[j];
    }
    for (int i = 0; i < kTile / 8; ++i)
      for (int j = 0; j < 4; ++j) {
        const int row = thread_y() + 8 * i;
        float* sum = sums + row * pitch + column + 16 * j;
        if (column + 16 * j < width) *sum = *sum * keep(row) + part[i][j];
      }
  }
}
template <int kTile, class Weight>
__device__ __forceinline__ void add_products(float* sums, const float* b, int width, Weight weight) {
  add_products<kTile>(
      sums, b, width, [](int) { return 1.0f; }, weight);
}

// The thread's own part of sums.
template <int kTile>
__device__ __forceinline__ void clear_sums(float* sums, int width) {
  for (int row = thread_y(); row < kTile; row += 8)
    for (int d = thread_x(); d < width; d += 16) sums[row * pitch_of(width) + d] = 0;
}
template <int kTile, class Factor>
__device__ __forceinline__ void store_sums(const float* sums, const Head& head, int first, const AttentionJob& job,
                                           Factor factor) {
  for (int row = thread_y(); row < kTile && first + row < job.length; row += 8)
    for (int d = thread_x(); d < job.width; d += 16)
      head.store(first + row, d, sums[row * pitch_of(job.width) + d] * factor(row));
}

// Whether query q sees key k.
__device__ __forceinline__ bool sees(const AttentionJob& job, const int32_t* segments, int q, int k) {
  return in_sight(job, q, k) && (!segments || segments[q] == segments[k]);
}

}  // namespace trainer::cuda
