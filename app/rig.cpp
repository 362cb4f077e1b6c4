#include "app/rig.h"

#include "app/algorithms.h"
#include "core/base/error.h"

namespace trainer {
namespace {

void compare_plans(uint64_t hash, Exchange& exchange) {
  const std::vector<std::string> all = exchange.all_gather(fmt::format("{:016x}", hash));
  for (size_t rank = 0; rank < all.size(); ++rank)
    check(all[rank] == all[0], Exit::rank,
          "the plan of rank {} has hash {}, that of rank 0 has {}: start all ranks with the same spec, overrides and "
          "build",
          rank, all[rank], all[0]);
}

}  // namespace

Rig open_rig(Planned planned, Exchange& exchange) {
  compare_plans(planned.program.hash, exchange);
  Transport transport = open_transport(planned, exchange);
  auto device = open_device(planned.spec.device, planned.program, transport.arena);
  if (device->kind() == DeviceKind::cuda)
    for (std::string& note : choose_algorithms(planned, *device, exchange)) transport.notes.push_back(std::move(note));
  return {std::move(planned), std::move(transport), std::move(device)};
}

Rig open_rig(Planned planned) {
  SoloExchange alone;
  return open_rig(std::move(planned), alone);
}

}  // namespace trainer
