// Launches: the blocks of a grid, spread over OS threads in an order of the schedule's.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

namespace cuemu {

// Runs the grid to its end. Shared memory and dimensions beyond the device's fail.
void run_grid(const char* name, dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body);

// The runtime's part: `body` runs when the stream comes to it.
void enqueue_kernel(const char* name, const void* function, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t,
                    std::function<void()> body);

}  // namespace cuemu
