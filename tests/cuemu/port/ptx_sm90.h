// The emulated twins of the instructions in kernels/cuda/port/ptx_sm90.h.
#pragma once
#include "ptx.h"
#include "tests/cuemu/sm90.h"

namespace ptx {

inline void stmatrix_x4(void* row, const uint32_t (&r)[4], cuemu_loc l = cuemu_loc::current()) {
  cuemu::stmatrix_x4(row, r, l);
}
inline void mbarrier_init(uint64_t* barrier, unsigned arrivals, cuemu_loc l = cuemu_loc::current()) {
  cuemu::mbarrier_init(barrier, arrivals, l);
}
inline void mbarrier_init_fence() {}
inline void mbarrier_arrive(uint64_t* barrier, cuemu_loc l = cuemu_loc::current()) {
  cuemu::mbarrier_arrive(barrier, 0, l);
}
inline void mbarrier_arrive_expect(uint64_t* barrier, unsigned bytes, cuemu_loc l = cuemu_loc::current()) {
  cuemu::mbarrier_arrive(barrier, bytes, l);
}
inline void mbarrier_wait(uint64_t* barrier, unsigned parity, cuemu_loc l = cuemu_loc::current()) {
  cuemu::mbarrier_wait(barrier, parity, l);
}
template <int N>
void give_up_registers() {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0);
}
template <int N>
void take_registers() {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0);
}
inline void bulk_load(void* dst, const void* src, unsigned bytes, uint64_t* barrier,
                      cuemu_loc l = cuemu_loc::current()) {
  cuemu::bulk_load(dst, src, bytes, barrier, l);
}
inline void tile_load_4d(void* dst, const void* map, uint64_t* barrier, int x, int y, int z, int w,
                         cuemu_loc l = cuemu_loc::current()) {
  const int at[] = {x, y, z, w};
  cuemu::tile_load(dst, map, barrier, at, 4, l);
}

inline uint64_t wgmma_descriptor(const void* tile, unsigned leading_bytes, unsigned stride_bytes) {
  return uint64_t(cuemu::shared_address(tile) >> 4 & 0x3fff) | uint64_t(leading_bytes >> 4) << 16 |
         uint64_t(stride_bytes >> 4) << 32 | uint64_t{1} << 62;
}
inline void wgmma_fence() { cuemu::wgmma_fence(); }
inline void wgmma_commit() { cuemu::wgmma_commit(); }
template <int N>
void wgmma_wait(cuemu_loc l = cuemu_loc::current()) {
  cuemu::wgmma_wait(N, l);
}
template <int N>
void wgmma_settle(float (&)[N]) {}
inline uint64_t wgmma_later(uint64_t descriptor, unsigned bytes) { return descriptor + (bytes >> 4); }
template <int N, bool kTransposeA = false, bool kTransposeB = false>
void wgmma_bf16(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate, cuemu_loc l = cuemu_loc::current()) {
  cuemu::wgmma(d, {N, nullptr, a, b, kTransposeA, kTransposeB, accumulate}, l);
}
template <int N, bool kTransposeB = false>
void wgmma_bf16(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                cuemu_loc l = cuemu_loc::current()) {
  cuemu::wgmma(d, {N, a, 0, b, false, kTransposeB, accumulate}, l);
}

}  // namespace ptx
