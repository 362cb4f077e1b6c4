// CUDA as a kernel file sees it: shared memory, launches. tests/cuemu/port holds the emulated twin of this header.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cstddef>
#include <cstdint>
#define CU_SHARED(T, name, ...) __shared__ __align__(16) T name __VA_ARGS__
template <class T>
__device__ __forceinline__ T* cu_dyn_shared() {
  extern __shared__ __align__(128) unsigned char cu_dyn_raw[];
  return reinterpret_cast<T*>(cu_dyn_raw);
}
#define CU_LAUNCH(k, g, b, smem, s, ...) ::cu_launch(k, g, b, smem, s, ##__VA_ARGS__)
template <class... P, class... A>
inline void cu_launch(void (*k)(P...), dim3 g, dim3 b, size_t smem, cudaStream_t s, A... a) {
  k<<<g, b, smem, s>>>(static_cast<P>(a)...);
}
// So many bytes at p, in global memory, are loaded, stored: what the emulated device counts.
__device__ __forceinline__ void cu_loads(const void*, size_t) {}
__device__ __forceinline__ void cu_stores(const void*, size_t) {}
#define CU_FUNC_SMEM(k, bytes) cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes))
