#include "kernels/cuda/lane_clock.h"

#include "cuda_port.h"
#include "ptx.h"

namespace trainer::cuda {

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
