// Errors of the CUDA runtime as the project's own.
#pragma once
#include <cuda_runtime_api.h>

#include "core/base/error.h"

namespace trainer::cuda {

// Throws Error(device) with what was tried, and the runtime's name and sentence for what went wrong.
inline void check_cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // it is told: the next call must not find it
  fail(Exit::device, "{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result));
}

}  // namespace trainer::cuda
