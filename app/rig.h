// A planned model on a device: what training, evaluation and the step benchmark share.
#pragma once
#include <memory>

#include "app/planning.h"
#include "core/device/comm.h"

namespace trainer {

struct Rig {
  Planned planned;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Device> device;
  std::unique_ptr<Groups> groups;
  std::span<std::byte> arena() { return device->arena(); }
};

// Reserves the arena (exactly the plan's bytes) and opens the device on it.
Rig open_rig(Planned);

}  // namespace trainer
