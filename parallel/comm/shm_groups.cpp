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

Comm& ShmGroups::on(Axis axis, Lane lane) {
  Comm*& comm = found_[size_t(axis)][size_t(lane)];
  if (comm) return *comm;
  GroupName group = group_of(mesh_, stages_, axis);
  if (group.size() == 1) return *(comm = &self_);
  const int slot = shm::axis_slot(axis, lane);
  ShmPlace place{std::string(name_of(lane)), slot, slot, spins_of(world_, lane)};
  comms_.push_back(std::make_unique<ShmComm>(world_, std::move(group), std::move(place), traffic_.entry(axis, lane)));
  return *(comm = comms_.back().get());
}

Comm& ShmGroups::pipe(int from, int to, bool gradient) {
  Comm*& comm = pipes_[{from, to, gradient}];
  if (comm) return *comm;
  check(from != to && mesh_.pp <= shm::kMaxStages, Exit::rank, "[shm] pipe {} > {} of {} stages, at most {}", from, to,
        mesh_.pp, shm::kMaxStages);
  const bool sends = mesh_.stage == from;
  const Lane lane = gradient ? (sends ? Lane::send_grad : Lane::recv_grad) : (sends ? Lane::send_act : Lane::recv_act);
  ShmPlace place{std::string(name_of(lane)), shm::pipe_slot(sends ? to : from, sends, gradient),
                 shm::pipe_slot(mesh_.stage, !sends, gradient), spins_of(world_, lane)};
  comms_.push_back(std::make_unique<ShmComm>(world_, pipe_group(mesh_, from, to, gradient), std::move(place),
                                             traffic_.entry(Axis::pp, lane)));
  return *(comm = comms_.back().get());
}

}  // namespace trainer
