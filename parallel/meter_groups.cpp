#include "parallel/meter_groups.h"

#include <fmt/format.h>

namespace trainer {

Comm& MeterGroups::on(Axis axis, Lane) { return open(std::string(name_of(axis)), group_of(mesh_, stages_, axis)); }
Comm& MeterGroups::pipe(int from, int to, bool gradient) {
  return open(fmt::format("{} {}>{}", gradient ? "grad" : "act", from, to), pipe_group(mesh_, from, to, gradient));
}
Comm& MeterGroups::open(const std::string& name, const GroupName& g) {
  auto& comm = comms_[name];
  if (!comm) comm = std::make_unique<MeterComm>(name, g.rank, g.size(), counts_);
  return *comm;
}

}  // namespace trainer
