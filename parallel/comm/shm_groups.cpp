#include "parallel/comm/shm_groups.h"

#include "core/base/error.h"

namespace trainer {
namespace {

// The compute lane has nothing else to do; the others share its core. Measured: a sleep and a wake-up cost about 10 us.
int spins_of(const ShmWorld& world, Lane lane) {
  if (!world.cores_suffice()) return 0;
  return lane == Lane::compute ? 2000 : 200;
}

}  // namespace

ShmPlace ShmGroups::place(Axis axis, Lane lane) const {
  const int slot = shm::axis_slot(axis, lane);
  return {std::string(name_of(lane)), slot, slot, spins_of(world_, lane)};
}

ShmPlace ShmGroups::pipe_place(int from, int to, bool gradient) const {
  check(from != to && mesh_.pp <= shm::kMaxStages, Exit::rank, "[shm] pipe {} > {} of {} stages, at most {}", from, to,
        mesh_.pp, shm::kMaxStages);
  const bool sends = mesh_.stage == from;
  const Lane lane = pipe_lane(sends, gradient);
  return {std::string(name_of(lane)), shm::pipe_slot(sends ? to : from, sends, gradient),
          shm::pipe_slot(mesh_.stage, !sends, gradient), spins_of(world_, lane)};
}

Comm& ShmGroups::on(Axis axis, Lane lane) {
  Comm*& comm = found_[size_t(axis)][size_t(lane)];
  if (comm) return *comm;
  const GroupName group = group_of(mesh_, stages_, axis);
  if (group.size() == 1) return *(comm = &self_);
  comms_.push_back(std::make_unique<ShmComm>(world_, group, place(axis, lane), traffic_.entry(axis, lane)));
  return *(comm = comms_.back().get());
}

Comm& ShmGroups::pipe(int from, int to, bool gradient) {
  Comm*& comm = pipes_[{from, to, gradient}];
  if (comm) return *comm;
  comms_.push_back(std::make_unique<ShmComm>(world_, pipe_group(mesh_, from, to, gradient),
                                             pipe_place(from, to, gradient),
                                             traffic_.entry(Axis::pp, pipe_lane(mesh_.stage == from, gradient))));
  return *(comm = comms_.back().get());
}

}  // namespace trainer
