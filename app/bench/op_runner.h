// Runs single operations on the CPU device and times them.
#pragma once
#include <algorithm>
#include <chrono>
#include <memory>

#include "core/ops/ops.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/huge_memory.h"

namespace trainer {

class OpRunner {
 public:
  // `bytes` for tensors. Kernels must be installed.
  OpRunner(int threads, size_t bytes);
  // Pseudo-random values in [-1, 1); the same in every run.
  Tensor take(DType, Shape);
  Tensor take_zero(DType, Shape);
  // Gives back all tensors, for the next shape.
  void reset();
  // Seconds of the fastest of `repeats` runs, after one that warms up.
  template <class Op>
  double best_seconds(const Op& op, int repeats = 5) {
    require_scratch(Op::kName,
                    Kernel<Op>::on(DeviceKind::cpu).scratch ? Kernel<Op>::on(DeviceKind::cpu).scratch(op) : 0);
    run(op);
    double best = 1e300;
    for (int i = 0; i < repeats; ++i) best = std::min(best, run(op));
    return best;
  }
  template <class Op>
  double run(const Op& op) {
    const auto start = std::chrono::steady_clock::now();
    launch(stream(), op);
    device_->drain();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  Stream& stream() { return device_->lane(Lane::compute); }
  Device& device() { return *device_; }

 private:
  void require_scratch(const char* op, size_t bytes) const;
  cpu::HugeMemory memory_;
  std::span<std::byte> arena_;
  size_t top_ = 0;
  std::unique_ptr<cpu::CpuDevice> device_;
};

}  // namespace trainer
