// Memory of the device for the arena, and pinned memory of the host for what travels between them.
#pragma once
#include "core/device/device.h"

namespace trainer::cuda {

// The host waits for what cudaMemset and cudaMemcpy have begun: lanes do not wait for the default stream, and a fill,
// or a copy from pageable memory, may return before it is done.
void finish_default_stream();

class CudaMemory final : public Memory {
 public:
  CudaMemory() = default;
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  // Zeroed, of the current device. Throws Error(memory), before anything is allocated, where so much is not free beside
  // kReserveBytes (kernels/cuda/backend.h).
  std::span<std::byte> reserve(size_t bytes) override;

 private:
  void* memory_ = nullptr;
};

class PinnedMemory final : public Memory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory() override;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::span<std::byte> reserve(size_t bytes) override;

 private:
  void* memory_ = nullptr;
};

}  // namespace trainer::cuda
