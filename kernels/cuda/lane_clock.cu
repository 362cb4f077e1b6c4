#include "kernels/cuda/lane_clock.h"

#include <cstring>

#include "cuda_port.h"
#include "kernels/cuda/cuda_error.h"
#include "ptx.h"

namespace trainer::cuda {

struct LaneClock::Sums {
  uint64_t begun[kPlaces], spent[kPlaces];  // nanoseconds; begun is 0 where nothing is
};

namespace {

__global__ void begin_place(uint64_t* begun) { *begun = ptx::global_timer(); }

__global__ void end_place(uint64_t* begun, uint64_t* spent) {
  *spent += ptx::global_timer() - *begun;
  *begun = 0;
}

// A thread of each place.
__global__ void tell_places(uint64_t* told, const uint64_t* begun, const uint64_t* spent) {
  const uint64_t since = begun[threadIdx.x];
  told[threadIdx.x] = spent[threadIdx.x] + (since ? ptx::global_timer() - since : 0);
}

}  // namespace

LaneClock::LaneClock() {
  void *sums = nullptr, *told = nullptr;
  check_cuda(cudaMalloc(&sums, sizeof(Sums)), "allocating a clock");
  sums_ = static_cast<Sums*>(sums);
  check_cuda(cudaMemset(sums_, 0, sizeof(Sums)), "clearing a clock");
  check_cuda(cudaHostAlloc(&told, kPlaces * sizeof *told_, cudaHostAllocDefault), "pinning a clock");
  told_ = static_cast<uint64_t*>(told);
  std::memset(told_, 0, kPlaces * sizeof *told_);
}
LaneClock::~LaneClock() {
  cudaFree(sums_);
  cudaFreeHost(told_);
}
void LaneClock::begin(cudaStream_t stream, int place) {
  CU_LAUNCH(begin_place, dim3(1), dim3(1), 0, stream, sums_->begun + place);
}
void LaneClock::end(cudaStream_t stream, int place) {
  CU_LAUNCH(end_place, dim3(1), dim3(1), 0, stream, sums_->begun + place, sums_->spent + place);
}
void LaneClock::tell(cudaStream_t stream) {
  CU_LAUNCH(tell_places, dim3(1), dim3(kPlaces), 0, stream, told_, static_cast<const uint64_t*>(sums_->begun),
            static_cast<const uint64_t*>(sums_->spent));
}

}  // namespace trainer::cuda
