// CUDA's built-in variables and functions, as device code finds them. The toolkit's headers bring the types.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/cuemu/device_atomics.h"
#include "tests/cuemu/warp.h"

#undef __shared__
#define __shared__ static thread_local  // a block runs on one OS thread. CU_SHARED adds red zones and poison
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

namespace cuemu {
void block_barrier(const Location&);
void* shared_slot(const void* tag, size_t bytes, size_t align);
void* dyn_shared(size_t align);
size_t dyn_shared_bytes();
}  // namespace cuemu

using cuemu_loc = cuemu::Location;

// Plain variables: the scheduler sets them at each switch of a fiber.
inline constinit thread_local uint3 threadIdx{}, blockIdx{};
inline constinit thread_local dim3 blockDim{}, gridDim{};
inline constexpr int warpSize = 32;

inline void __syncthreads(cuemu_loc l = cuemu_loc::current()) { cuemu::block_barrier(l); }
inline void __syncwarp(unsigned m = 0xffffffffu, cuemu_loc l = cuemu_loc::current()) {
  cuemu::warp_collective(
      cuemu::Op::syncwarp, m, nullptr, nullptr, [](cuemu::Collective&) {}, l);
}
template <class T>
T __shfl_sync(unsigned m, T v, int lane, int width = 32, cuemu_loc l = cuemu_loc::current()) {
  return cuemu::shuffle(m, v, cuemu::Shuffle::index, lane, width, l);
}
template <class T>
T __shfl_up_sync(unsigned m, T v, unsigned delta, int width = 32, cuemu_loc l = cuemu_loc::current()) {
  return cuemu::shuffle(m, v, cuemu::Shuffle::up, int(delta), width, l);
}
template <class T>
T __shfl_down_sync(unsigned m, T v, unsigned delta, int width = 32, cuemu_loc l = cuemu_loc::current()) {
  return cuemu::shuffle(m, v, cuemu::Shuffle::down, int(delta), width, l);
}
template <class T>
T __shfl_xor_sync(unsigned m, T v, int lanes, int width = 32, cuemu_loc l = cuemu_loc::current()) {
  return cuemu::shuffle(m, v, cuemu::Shuffle::exclusive_or, lanes, width, l);
}
inline unsigned __ballot_sync(unsigned m, int p, cuemu_loc l = cuemu_loc::current()) { return cuemu::ballot(m, p, l); }
inline int __any_sync(unsigned m, int p, cuemu_loc l = cuemu_loc::current()) { return cuemu::ballot(m, p, l) != 0; }
inline int __all_sync(unsigned m, int p, cuemu_loc l = cuemu_loc::current()) { return cuemu::ballot(m, p, l) == m; }
inline unsigned __activemask() { return cuemu::active_mask(); }

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) { cuemu::yield_thread(); }

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T v) {
  *p = v;
}
template <class T>
void __stcg(T* p, T v) {
  *p = v;
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline float __int_as_float(int i) { return std::bit_cast<float>(i); }
inline int __float_as_int(float f) { return std::bit_cast<int>(f); }
inline unsigned __float_as_uint(float f) { return std::bit_cast<unsigned>(f); }
inline float __uint_as_float(unsigned i) { return std::bit_cast<float>(i); }

// The approximations are exact here; the hardware's differ in the last bits.
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
namespace cuemu {
inline float fast_exp(float x) { return std::exp(x); }
inline float fast_log(float x) { return std::log(x); }
}  // namespace cuemu
#define __expf(x) ::cuemu::fast_exp(x)  // libm declares functions of these names
#define __logf(x) ::cuemu::fast_log(x)
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
