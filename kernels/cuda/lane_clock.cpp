#include "kernels/cuda/lane_clock.h"

#include <cstring>

#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/cuda_memory.h"

namespace trainer::cuda {

LaneClock::LaneClock() {
  void *sums = nullptr, *told = nullptr;
  check_cuda(cudaMalloc(&sums, sizeof(Sums)), "allocating a clock");
  sums_ = static_cast<Sums*>(sums);
  check_cuda(cudaMemset(sums_, 0, sizeof(Sums)), "clearing a clock");
  finish_default_stream();
  check_cuda(cudaHostAlloc(&told, kPlaces * sizeof *told_, cudaHostAllocDefault), "pinning a clock");
  told_ = static_cast<uint64_t*>(told);
  std::memset(told_, 0, kPlaces * sizeof *told_);
}
LaneClock::~LaneClock() {
  cudaFree(sums_);
  cudaFreeHost(told_);
}

}  // namespace trainer::cuda
