// A planned model on a device: what training, evaluation and the step benchmark share.
#pragma once
#include <memory>

#include "app/planning.h"
#include "core/device/comm.h"
#include "parallel/comm/exchange.h"
#include "parallel/comm/traffic.h"

namespace trainer {

struct Rig {
  Planned planned;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Traffic> traffic;
  std::unique_ptr<Groups> groups;
  std::unique_ptr<Device> device;  // its lanes end first
  std::span<std::byte> arena() { return device->arena(); }
};

// Reserves the arena (exactly the plan's bytes), opens the device on it, and joins the other ranks: each has the same
// plan, or Error(rank) names those who do not.
Rig open_rig(Planned, Exchange&);
// A world of one.
Rig open_rig(Planned);

}  // namespace trainer
