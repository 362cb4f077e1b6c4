// The emulated twins of the instructions in kernels/cuda/port/ptx.h.
#pragma once
#include <chrono>

#include "cuda_port.h"

namespace ptx {
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4],
                              cuemu_loc l = cuemu_loc::current()) {
  uint32_t b[2] = {b0, b1};
  cuemu::mma_m16n8k16_bf16(d, a, b, c, l);
}
inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, cuemu_loc l = cuemu_loc::current()) {
  cuemu::ldmatrix(r, 4, row, false, l);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, cuemu_loc l = cuemu_loc::current()) {
  cuemu::ldmatrix(r, 4, row, true, l);
}
inline void cp_async_16(void* dst, const void* src, bool pred, cuemu_loc l = cuemu_loc::current()) {
  cuemu::cp_async(dst, src, 16, pred ? 16 : 0, l);
}
inline void cp_async_4(void* dst, const void* src, bool pred, cuemu_loc l = cuemu_loc::current()) {
  cuemu::cp_async(dst, src, 4, pred ? 4 : 0, l);
}
inline void cp_async_commit() { cuemu::cp_async_commit(); }
template <int N>
inline void cp_async_wait() {
  cuemu::cp_async_wait(N);
}
inline float exp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}
inline int opaque(int x) { return x; }
inline uint64_t global_timer() {
  return uint64_t(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}
__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
  __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  uint32_t r;
  memcpy(&r, &v, 4);
  return r;
}
}  // namespace ptx
