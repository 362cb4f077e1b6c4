#include "parallel/comm/hosts_groups.h"

namespace trainer {

Comm& HostsGroups::on(Axis axis, Lane lane) {
  Comm*& comm = found_[size_t(axis)][size_t(lane)];
  if (comm) return *comm;
  const GroupName group = group_of(mesh_, stages_, axis);
  auto spans = host_spans(group, over_.host_of);
  if (spans.size() == 1) return *(comm = &local_.on(axis, lane));
  HostsComm::Place place{local_.place(axis, lane), lane, lane, over_.traffic.entry(axis, lane)};
  comms_.push_back(std::make_unique<HostsComm>(over_.world, over_.network, group, std::move(spans), place));
  return *(comm = comms_.back().get());
}

Comm& HostsGroups::pipe(int from, int to, bool gradient) {
  Comm*& comm = pipes_[{from, to, gradient}];
  if (comm) return *comm;
  const GroupName group = pipe_group(mesh_, from, to, gradient);
  auto spans = host_spans(group, over_.host_of);
  if (spans.size() == 1) return *(comm = &local_.pipe(from, to, gradient));
  const bool sends = mesh_.stage == from;
  const Lane own = pipe_lane(sends, gradient), of_peer = pipe_lane(!sends, gradient);
  HostsComm::Place place{local_.pipe_place(from, to, gradient), own, of_peer, over_.traffic.entry(Axis::pp, own)};
  comms_.push_back(std::make_unique<HostsComm>(over_.world, over_.network, group, std::move(spans), place));
  return *(comm = comms_.back().get());
}

}  // namespace trainer
