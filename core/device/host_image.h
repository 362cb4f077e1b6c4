// The beginning of a device's arena as the host reads and writes it: the arena itself where the host reaches it, a copy
// otherwise.
#pragma once
#include <vector>

#include "core/device/device.h"

namespace trainer {

class HostImage {
 public:
  // Of the arena's first `bytes`. Borrowed: the device outlives the image. The device must be drained at every call.
  HostImage(Device& device, size_t bytes) : device_(device), bytes_(bytes) {
    if (!reaches()) copy_.resize(bytes);
  }
  std::span<std::byte> bytes() { return reaches() ? device_.arena().first(bytes_) : std::span(copy_); }
  void fetch() {  // what the device holds
    if (!reaches()) device_.download(copy_, device_.arena().data());
  }
  void store() {  // onto the device
    if (!reaches()) device_.upload(device_.arena().data(), copy_);
  }

 private:
  bool reaches() const { return device_.kind() == DeviceKind::cpu; }
  Device& device_;
  size_t bytes_;
  std::vector<std::byte> copy_;
};

}  // namespace trainer
