#include "app/rig.h"

#include "app/wire.h"

namespace trainer {

Rig open_rig(Planned planned) {
  Rig rig{.planned = std::move(planned), .memory = nullptr, .device = nullptr, .groups = nullptr};
  rig.memory = open_memory(rig.planned.spec.device);
  const auto arena = rig.memory->reserve(rig.planned.program.arena_bytes);
  rig.device = open_device(rig.planned.spec.device, rig.planned.program, arena);
  rig.groups = open_groups(rig.planned.mesh);
  return rig;
}

}  // namespace trainer
