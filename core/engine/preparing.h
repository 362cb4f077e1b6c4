// A device on which plans are issued before step 0: nothing runs, but the kernel of every call may prepare
// (core/ops/kernel.h).
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>

#include "core/device/device.h"

namespace trainer {

// The device as the kernel of a call sees it: every lane is the one that the call will run on.
class OneLane final : public Device {
 public:
  OneLane(Device& device, Lane lane) : device_(device), stream_(device.lane(lane)) {}
  DeviceKind kind() const override { return device_.kind(); }
  Stream& lane(Lane) override { return stream_; }
  std::span<std::byte> arena() override { return device_.arena(); }
  std::span<std::byte> page() override { return device_.page(); }
  std::span<std::byte> more_page(size_t bytes) override { return device_.more_page(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) override { device_.upload(to, from); }
  void download(std::span<std::byte> to, const std::byte* from) override { device_.download(to, from); }
  void wait(Event e) override { device_.wait(e); }
  void drain() override { device_.drain(); }
  std::optional<LaneTimes> times(Lane) override { return std::nullopt; }

 private:
  Device& device_;
  Stream& stream_;
};

class PreparingStream final : public Stream {
 public:
  PreparingStream(Device& device, Lane lane) : device_(device, lane), lane_(lane) {}
  DeviceKind kind() const override { return device_.kind(); }
  void* native() override { return device_.lane(lane_).native(); }
  void charge(std::string_view op, Cost, size_t) override { op_ = op; }
  void submit(void (*run)(Stream&, const void*), const void* args, size_t bytes) override;
  Event record() override { return {lane_, 0}; }
  void wait(Event) override {}
  std::span<std::byte> scratch() override { return device_.lane(lane_).scratch(); }

 private:
  OneLane device_;
  const Lane lane_;
  std::string op_;  // whose arguments come next; empty: a collective's
};

class PreparingDevice final : public Device {
 public:
  explicit PreparingDevice(Device& device) : device_(device) {}
  DeviceKind kind() const override { return device_.kind(); }
  Stream& lane(Lane l) override {
    auto& stream = lanes_[size_t(l)];
    if (!stream) stream = std::make_unique<PreparingStream>(device_, l);
    return *stream;
  }
  std::span<std::byte> arena() override { return device_.arena(); }
  std::span<std::byte> page() override { return device_.page(); }
  std::span<std::byte> more_page(size_t bytes) override { return device_.more_page(bytes); }
  void upload(std::byte*, std::span<const std::byte>) override {}
  void download(std::span<std::byte>, const std::byte*) override {}
  void wait(Event) override {}
  void drain() override {}
  std::optional<LaneTimes> times(Lane) override { return std::nullopt; }

 private:
  Device& device_;
  std::array<std::unique_ptr<PreparingStream>, kLanes> lanes_;
};

}  // namespace trainer
