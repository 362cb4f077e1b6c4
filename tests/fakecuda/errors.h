// The error codes of calls.
#pragma once
#include <cuda_runtime_api.h>

namespace fake {

cudaError_t note(cudaError_t);  // remembers an error for cudaGetLastError, and returns it
cudaError_t unavailable();      // what every call returns on a machine without a GPU or with a driver too old

}  // namespace fake
