#include "kernels/cuda/cuda_stopwatch.h"

#include "kernels/cuda/cuda_error.h"

namespace trainer::cuda {

CudaStopwatch::CudaStopwatch(cudaStream_t stream) : stream_(stream) {
  check_cuda(cudaEventCreateWithFlags(&begin_, cudaEventDefault), "creating an event");
  check_cuda(cudaEventCreateWithFlags(&end_, cudaEventDefault), "creating an event");
}

CudaStopwatch::~CudaStopwatch() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

void CudaStopwatch::start() { check_cuda(cudaEventRecord(begin_, stream_), "recording an event"); }

double CudaStopwatch::stop() {
  float milliseconds = 0;
  check_cuda(cudaEventRecord(end_, stream_), "recording an event");
  check_cuda(cudaEventSynchronize(end_), "waiting for what is timed");
  check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "asking how long it took");
  return 1e-3 * milliseconds;
}

}  // namespace trainer::cuda
