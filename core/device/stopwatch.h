// How long a device takes for what is launched on a lane. The host waits: for benchmarks, never in a step.
#pragma once
#include <chrono>

#include "core/device/device.h"

namespace trainer {

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void start() = 0;
  virtual double stop() = 0;  // seconds since start, when all that was launched meanwhile is done
};

// By the host's clock: of a device without one.
class HostStopwatch final : public Stopwatch {
 public:
  explicit HostStopwatch(Device& device) : device_(device) {}
  void start() override {
    device_.drain();
    start_ = std::chrono::steady_clock::now();
  }
  double stop() override {
    device_.drain();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  Device& device_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace trainer
