// Tiles of bf16 in shared memory and products of them by warps with mma.sync: what the tensor-core kernels of attention
// are made of (Dao 2023, "FlashAttention-2").
//
// A block has four warps; each has 16 * kM rows of the block's own tile. An accumulator x[m][n][4] holds, of the warp's
// rows 16 m and of columns 8 n, what mma.m16n8k16 gives a lane: [0] and [1] are row lane / 4 and columns lane % 4 * 2
// and the one after it, [2] and [3] the row 8 further down.
#pragma once
#include "kernels/cuda/attention_mask.cuh"
#include "ptx.h"

namespace trainer::cuda {

using Bf16 = __nv_bfloat16;

inline constexpr int kWarps = 4, kTileThreads = 32 * kWarps;

__device__ __forceinline__ int warp_of_thread() { return int(threadIdx.x) / 32; }
__device__ __forceinline__ int lane_of_thread() { return int(threadIdx.x) % 32; }
__device__ __forceinline__ int lane_row() { return lane_of_thread() / 4; }
__device__ __forceinline__ int lane_column() { return lane_of_thread() % 4 * 2; }

// Offset of the eight elements `chunk` of a row. Chunks change places within a row, so that the same chunk of eight
// rows one after the other, which is what ldmatrix reads, lies in eight different groups of banks.
template <int D>
constexpr int kTurns = D % 64 == 0 ? 8 : 4;  // chunks that change places with each other
template <int D>
__device__ __forceinline__ int chunk_at(int row, int chunk) {
  static_assert(D == 64 || D == 96 || D == 128);
  return row * D + ((chunk ^ (kTurns<D> == 8 ? row & 7 : row >> 1 & 3)) << 3);
}
// From a chunk 0 or 1 to that which comes an even number of chunks later. The offset grows by 8 D with every 8 rows: so
// a lane has few addresses to keep, the rest is known when compiling.
template <int D>
__device__ __forceinline__ int chunks_later(int at, int chunks) {
  return (at ^ chunks % kTurns<D> << 3) + chunks / kTurns<D> * kTurns<D> * 8;
}

// Begins to copy rows [first, first + kRows) of a head; zeros for those behind the length.
template <int D, int kRows>
__device__ __forceinline__ void load_rows(Bf16* tile, const Bf16* head, int64_t stride, int first, int length) {
  constexpr int kAcross = kTurns<D>, kAtOnce = kTileThreads / kAcross;
  static_assert(kRows % kAtOnce == 0);
  const int thread = ptx::opaque(int(threadIdx.x));
  const int row = thread / kAcross, chunk = thread % kAcross, to = chunk_at<D>(row, chunk);
  const Bf16* from = head + int64_t(first + row) * stride + chunk * 8;
#pragma unroll
  for (int i = 0; i < kRows; i += kAtOnce) {
    const bool there = first + row + i < length;
    const Bf16* source = there ? from + i * stride : head;
#pragma unroll
    for (int j = 0; j < D / 8; j += kAcross) ptx::cp_async_16(tile + to + i * D + j * 8, source + j * 8, there);
  }
}

template <int kM, int kN>
__device__ __forceinline__ void clear(float (&x)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[m][n][i] = 0;
}

// dots = the warp's rows of a, from `row` on, times the rows of b.
template <int D, int kM, int kN>
__device__ __forceinline__ void multiply_rows(float (&dots)[kM][kN][4], const Bf16* a, int row, const Bf16* b) {
  const int lane = lane_of_thread();
  const int a_at = ptx::opaque(chunk_at<D>(row + lane % 16, lane / 16));
  const int b_at = ptx::opaque(chunk_at<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2));
  clear(dots);
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) ptx::ldmatrix_x4(left[m], a + chunks_later<D>(a_at, 2 * k) + 16 * m * D);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t right[4];  // rows 8 n .. 8 n + 7, both halves of k; the eight rows after them
      ptx::ldmatrix_x4(right, b + chunks_later<D>(b_at, 2 * k) + 8 * n * D);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        ptx::mma_m16n8k16_bf16(dots[m][n], left[m], right[0], right[1], dots[m][n]);
        ptx::mma_m16n8k16_bf16(dots[m][n + 1], left[m], right[2], right[3], dots[m][n + 1]);
      }
    }
  }
}

// Columns 8 n .. 8 n + 15 of accumulators, rounded to bf16, as the left operand of a product over them.
template <int kN>
__device__ __forceinline__ void pack_columns(uint32_t (&a)[4], const float (&x)[kN][4], int n) {
  a[0] = ptx::pack_bf16(x[n][0], x[n][1]);
  a[1] = ptx::pack_bf16(x[n][2], x[n][3]);
  a[2] = ptx::pack_bf16(x[n + 1][0], x[n + 1][1]);
  a[3] = ptx::pack_bf16(x[n + 1][2], x[n + 1][3]);
}

// sums += weights, rounded to bf16, times b, which has a row for each column of the weights.
template <int D, int kM, int kN>
__device__ __forceinline__ void add_products(float (&sums)[kM][D / 8][4], const float (&weights)[kM][kN][4],
                                             const Bf16* b) {
  const int at = ptx::opaque(chunk_at<D>(lane_of_thread() % 16, lane_of_thread() / 16));
#pragma unroll
  for (int k = 0; k < kN; k += 2) {
    uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) pack_columns(left[m], weights[m], k);
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      uint32_t right[4];
      ptx::ldmatrix_x4_trans(right, b + chunks_later<D>(at, n) + 8 * k * D);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        ptx::mma_m16n8k16_bf16(sums[m][n], left[m], right[0], right[1], sums[m][n]);
        ptx::mma_m16n8k16_bf16(sums[m][n + 1], left[m], right[2], right[3], sums[m][n + 1]);
      }
    }
  }
}

// Scores that the mask hides become -infinity. Rows begin at row0 and columns at column0, positions of queries and keys
// or, where kKeysInRows, of keys and queries. `segments` may be empty where the tiles are known to be of one.
template <bool kKeysInRows, int kM, int kN>
__device__ __forceinline__ void hide(float (&scores)[kM][kN][4], const AttentionJob& job, const int32_t* segments,
                                     int row0, int column0) {
  int32_t row_segments[kM][2] = {};
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + 16 * m + 8 * half + lane_row();
      if (segments && row < job.length) row_segments[m][half] = segments[row];
    }
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = column0 + 8 * n + lane_column() + e;
      const int32_t segment = segments && column < job.length ? segments[column] : 0;
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = row0 + 16 * m + 8 * half + lane_row();
          const bool seen = in_sight(job, kKeysInRows ? column : row, kKeysInRows ? row : column);
          if (!seen || row_segments[m][half] != segment) scores[m][n][2 * half + e] = -INFINITY;
        }
    }
}

// How the rows of a tile lie that load_rows fills.
template <int D>
struct RowLayout {
  static __device__ __forceinline__ int at(int row, int chunk) { return chunk_at<D>(row, chunk); }
};

// Writes 16 * kM rows of a tile, from `row` on, which lanes of the warp have put there before.
template <int D, class Layout, int kM>
__device__ __forceinline__ void write_rows(const Bf16* tile, int row, Bf16* head, int64_t stride, int first,
                                           int length) {
  __syncwarp();
  constexpr int kChunks = D / 8;
#pragma unroll
  for (int i = 0; i < 16 * kM * kChunks / 32; ++i) {
    const int at = lane_of_thread() + 32 * i, r = row + at / kChunks, chunk = at % kChunks;
    if (first + r < length)
      *reinterpret_cast<uint4*>(head + int64_t(first + r) * stride + chunk * 8) =
          *reinterpret_cast<const uint4*>(tile + Layout::at(r, chunk));
  }
}

// Writes the warp's rows, times `factor(m, half)`, by way of its rows of `tile`, which no other warp reads any more.
template <int D, int kM, class Factor>
__device__ __forceinline__ void store_rows(const float (&x)[kM][D / 8][4], Bf16* tile, int row, Bf16* head,
                                           int64_t stride, int first, int length, Factor factor) {
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float f = factor(m, half);
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        *reinterpret_cast<uint32_t*>(tile + chunk_at<D>(row + 16 * m + 8 * half + lane_row(), n) + lane_column()) =
            ptx::pack_bf16(x[m][n][2 * half] * f, x[m][n][2 * half + 1] * f);
    }
  write_rows<D, RowLayout<D>, kM>(tile, row, head, stride, first, length);
}

}  // namespace trainer::cuda
