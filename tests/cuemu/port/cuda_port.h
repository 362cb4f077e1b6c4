// The emulated twin of kernels/cuda/port/cuda_port.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include "tests/cuemu/emulator.h"
#define CU_SHARED(T, name, ...)                 \
  static const char cu_tag_##name = 0;          \
  T(&name)                                      \
  __VA_ARGS__ = *static_cast<T(*) __VA_ARGS__>( \
      ::cuemu::shared_slot(&cu_tag_##name, sizeof(T __VA_ARGS__), alignof(T) < 16 ? 16 : alignof(T)))
template <class T>
inline T* cu_dyn_shared() {
  return static_cast<T*>(cuemu::dyn_shared(128));
}
#define CU_LAUNCH(k, g, b, smem, s, ...) ::cu_launch(#k, k, g, b, smem, s, ##__VA_ARGS__)
template <class... P, class... A>
inline void cu_launch(const char* name, void (*k)(P...), dim3 g, dim3 b, size_t smem, cudaStream_t s, A... a) {
  std::tuple<P...> args(static_cast<P>(a)...);
  cuemu::enqueue_kernel(name, reinterpret_cast<const void*>(k), g, b, smem, s, [=] { std::apply(k, args); });
}
inline void cu_loads(const void* p, size_t bytes) { cuemu::count_loaded(p, bytes); }
inline void cu_stores(const void* p, size_t bytes) { cuemu::count_stored(p, bytes); }
#define CU_FUNC_SMEM(k, bytes) \
  cudaFuncSetAttribute(reinterpret_cast<const void*>(k), cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes))
