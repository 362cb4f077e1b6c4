#include "parallel/meter_groups.h"

#include <fmt/format.h>

namespace trainer {

Comm& MeterGroups::on(Axis axis, Lane) {
  const std::string name(name_of(axis));
  return open({name, name}, group_of(mesh_, stages_, axis));
}
Comm& MeterGroups::pipe(int from, int to, bool gradient) {
  return open({std::string(name_of(Axis::pp)), fmt::format("{} {}>{}", gradient ? "grad" : "act", from, to)},
              pipe_group(mesh_, from, to, gradient));
}
Comm& MeterGroups::open(const MeterComm::Label& label, const GroupName& g) {
  auto& comm = comms_[label.name];
  if (!comm) comm = std::make_unique<MeterComm>(label, g.rank, g.size(), counts_);
  return *comm;
}

}  // namespace trainer
