// The CPU's arena: anonymous memory on huge pages, touched before the first step (first touch of a 4 KiB page costs 12 us).
#pragma once
#include "core/device/device.h"

namespace trainer::cpu {

class HugeMemory final : public Memory {
 public:
  HugeMemory() = default;
  ~HugeMemory() override;
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;
  // Zeroed, 2 MiB aligned, resident. Throws Error(memory) where the system has not that much.
  std::span<std::byte> reserve(size_t bytes) override;

 private:
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
};

}  // namespace trainer::cpu
