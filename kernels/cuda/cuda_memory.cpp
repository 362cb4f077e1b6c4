#include "kernels/cuda/cuda_memory.h"

#include "kernels/cuda/backend.h"
#include "kernels/cuda/cuda_error.h"

namespace trainer::cuda {
namespace {

double in_gib(size_t bytes) { return double(bytes) / double(size_t{1} << 30); }

}  // namespace

void finish_default_stream() { check_cuda(cudaStreamSynchronize(nullptr), "waiting for a copy"); }

CudaMemory::~CudaMemory() { cudaFree(memory_); }

std::span<std::byte> CudaMemory::reserve(size_t bytes) {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for the device's memory");
  check(bytes + kReserveBytes <= free, Exit::memory,
        "the plan needs {:.2f} GiB and {:.2f} GiB of reserve on the GPU, {:.2f} of its {:.2f} GiB are free: shard more "
        "(parallel.zero, tp, pp), recompute more (memory.recompute), or make train.micro_batch smaller",
        in_gib(bytes), in_gib(kReserveBytes), in_gib(free), in_gib(total));
  check_cuda(cudaMalloc(&memory_, bytes), "allocating the arena");
  check_cuda(cudaMemset(memory_, 0, bytes), "clearing the arena");
  finish_default_stream();
  return {static_cast<std::byte*>(memory_), bytes};
}

PinnedMemory::~PinnedMemory() { cudaFreeHost(memory_); }

std::span<std::byte> PinnedMemory::reserve(size_t bytes) {
  check_cuda(cudaHostAlloc(&memory_, bytes, cudaHostAllocDefault), "pinning memory of the host");
  return {static_cast<std::byte*>(memory_), bytes};
}

}  // namespace trainer::cuda
