// Times of a stream by CUDA events: what lies between two of them, to half a microsecond (cudaEventElapsedTime).
#pragma once
#include <cuda_runtime_api.h>

#include "core/device/stopwatch.h"

namespace trainer::cuda {

class CudaStopwatch final : public Stopwatch {
 public:
  explicit CudaStopwatch(cudaStream_t);
  ~CudaStopwatch() override;
  CudaStopwatch(const CudaStopwatch&) = delete;
  CudaStopwatch& operator=(const CudaStopwatch&) = delete;
  void start() override;
  double stop() override;

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace trainer::cuda
