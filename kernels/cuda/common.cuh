// What every kernel shares: the stream, its scratch, grids.
#pragma once
#include "core/device/device.h"
#include "cuda_port.h"

namespace trainer::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

inline cudaStream_t stream_of(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

template <class T>
T* scratch_of(Stream& stream) {
  return reinterpret_cast<T*>(stream.scratch().data());
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Threads of a block for `work` items: whole warps, at most `most`.
constexpr int threads_for(int64_t work, int most) {
  return work >= most ? most : int(ceil_div(work > 0 ? work : 1, kWarp)) * kWarp;
}

}  // namespace trainer::cuda
