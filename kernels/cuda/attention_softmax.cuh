// Softmax over keys that come tile by tile (Milakov, Gimelshein 2018), on accumulators of a warp's rows as
// attention_tile.cuh describes them.
#pragma once
#include "kernels/cuda/attention_tile.cuh"

namespace trainer::cuda {

// Of the rows 16 m + lane_row() + 8 half of a warp. `total` is of the lane's own columns until row_sum.
template <int kM>
struct Softmax {
  float top[kM][2], total[kM][2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        top[m][half] = -INFINITY;
        total[m][half] = 0;
      }
  }
};

// The four lanes of a row.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Scores become weights below the highest score so far, exp2((score - top) * scale). What was summed with earlier
// weights is too large by 1 / shrink.
template <int kM, int kN>
__device__ __forceinline__ void soften(float (&scores)[kM][kN][4], Softmax<kM>& soft, float (&shrink)[kM][2],
                                       float scale) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = soft.top[m][half];
#pragma unroll
      for (int n = 0; n < kN; ++n) top = fmaxf(top, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      top = row_max(top);
      const float base = top == -INFINITY ? 0 : top * scale;  // a row that has seen no key yet
      shrink[m][half] = ptx::exp2(soft.top[m][half] * scale - base);
      float total = 0;
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[m][n][i] = ptx::exp2(scores[m][n][i] * scale - base);
          total += scores[m][n][i];
        }
      soft.top[m][half] = top;
      soft.total[m][half] = soft.total[m][half] * shrink[m][half] + total;
    }
}

template <int kM, int kN>
__device__ __forceinline__ void scale_rows(float (&x)[kM][kN][4], const float (&factor)[kM][2]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[m][n][i] *= factor[m][i / 2];
}

}  // namespace trainer::cuda
