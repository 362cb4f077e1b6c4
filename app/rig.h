// A planned model on a device: what training, evaluation and the step benchmark share.
#pragma once
#include <memory>

#include "app/wire.h"

namespace trainer {

struct Rig {
  Planned planned;
  Transport transport;
  std::unique_ptr<Device> device;  // its lanes end first
  std::span<std::byte> arena() { return device->arena(); }
  Groups& groups() { return *transport.groups; }
  const Traffic& traffic() const { return *transport.traffic; }
  std::span<std::byte> staging() { return transport.staging; }  // for the feed
};

// Reserves the arena (exactly the plan's bytes), opens the device on it, and joins the other ranks: each has the same
// plan, or Error(rank) names those who do not.
Rig open_rig(Planned, Exchange&);
// A world of one.
Rig open_rig(Planned);

}  // namespace trainer
