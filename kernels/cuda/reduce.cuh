// Sums over threads, in an order that depends on the number of threads alone.
#pragma once
#include "kernels/cuda/common.cuh"

namespace trainer::cuda {

// Every lane has the result over its `width` neighbours, a power of two; all lanes of the warp call it.
template <class T, class F>
__device__ __forceinline__ T lanes_reduce(T x, F f, int width = kWarp) {
  for (int offset = width / 2; offset > 0; offset /= 2) x = f(x, __shfl_xor_sync(kAllLanes, x, offset));
  return x;
}
template <class T>
__device__ __forceinline__ T lanes_sum(T x, int width = kWarp) {
  return lanes_reduce(
      x, [](T a, T b) { return a + b; }, width);
}

// Every thread has the result over its team: blockDim.x threads, a power of two below a warp or else whole warps, of
// which the block holds blockDim.y. All threads of the block call it. `warps` is shared, [warps of the block][kValues],
// and free to use again when all threads have met once more; whoever sums in a loop takes two in turn.
template <int kValues>
__device__ __forceinline__ void team_sum(float (&x)[kValues], float* warps) {
  const int team = int(blockDim.x);
#pragma unroll
  for (int k = 0; k < kValues; ++k) x[k] = lanes_sum(x[k], team < kWarp ? team : kWarp);
  if (team <= kWarp) return;
  const int of_team = team / kWarp, first = int(threadIdx.y) * of_team;
  if (threadIdx.x % kWarp == 0)
#pragma unroll
    for (int k = 0; k < kValues; ++k) warps[(first + threadIdx.x / kWarp) * kValues + k] = x[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kValues; ++k) x[k] = 0;
  for (int w = first; w < first + of_team; ++w)
#pragma unroll
    for (int k = 0; k < kValues; ++k) x[k] += warps[w * kValues + k];
}

// Thread 0 has the sum over a block of one dimension, of whole warps; `warps` is shared, one a warp.
__device__ __forceinline__ double block_sum(double x, double* warps) {
  x = lanes_sum(x);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (int w = 0; w < int(blockDim.x) / kWarp; ++w) sum += warps[w];
  return sum;
}

}  // namespace trainer::cuda
