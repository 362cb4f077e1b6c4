// Runs single operations on a device and times them.
#pragma once
#include <algorithm>
#include <memory>

#include "core/device/stopwatch.h"
#include "core/ops/ops.h"
#include "core/spec/run_spec.h"

namespace trainer {

class OpRunner {
 public:
  // `bytes` for tensors. The device is chosen (app/bench/bench_device.h).
  OpRunner(const DeviceSpec&, size_t bytes);
  // Pseudo-random values in [-1, 1); the same in every run.
  Tensor take(DType, Shape);
  Tensor take_zero(DType, Shape);
  // Gives back all tensors, for the next shape.
  void reset();
  // Seconds of the fastest of `repeats` runs, after one that warms up. Where one run is too short for the device's
  // clock, as many run at once as take two milliseconds, and share them.
  template <class Op>
  double best_seconds(const Op& op, int repeats = 5) {
    const auto& kernel = Kernel<Op>::on(device_->kind());
    require_scratch(Op::kName, kernel.scratch ? kernel.scratch(op) : 0);
    if (kernel.prepare) kernel.prepare(*device_, op);
    refuse_plain_products();
    const double first = seconds(op, 1);
    const int launches = runs_ahead() ? int(std::clamp(2e-3 / seconds(op, 1), 1.0, 100.0)) : 1;
    double best = first;
    for (int i = 0; i < repeats; ++i) best = std::min(best, seconds(op, launches));
    return best;
  }
  Stream& stream() { return device_->lane(Lane::compute); }
  Device& device() { return *device_; }
  Stopwatch& stopwatch() { return *stopwatch_; }

 private:
  template <class Op>
  double seconds(const Op& op, int launches) {
    stopwatch_->start();
    for (int i = 0; i < launches; ++i) launch(stream(), op);
    return stopwatch_->stop() / launches;
  }
  bool runs_ahead() const { return device_->kind() == DeviceKind::cuda; }
  void require_scratch(const char* op, size_t bytes) const;
  void refuse_plain_products() const;

  const size_t scratch_;
  std::unique_ptr<Memory> memory_;
  std::span<std::byte> arena_;
  size_t top_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stopwatch> stopwatch_;
};

}  // namespace trainer
