#include "parallel/comm/nccl/nccl_groups.h"

#include "core/base/error.h"

namespace trainer {

NcclGroups::NcclGroups(Exchange& exchange, const Mesh& mesh, const Stages& stages, Traffic& traffic,
                       const NcclOptions& options)
    : mesh_(mesh),
      stages_(stages),
      traffic_(traffic),
      plan_(plan_nccl(mesh, stages, options.zero, options.votes)),
      world_(exchange.size() == 1 ? nullptr : NcclWorld::open(exchange, options, int(plan_.splits.size()))) {
  if (!world_) return;
  try {
    for (const NcclPlan::Split& split : plan_.splits) handles_.push_back(world_->split(split));
    world_->try_all();
  } catch (const std::exception& e) {
    world_->abort(e.what());  // the others wait for this rank
    throw;
  }
}

// The exchange's handler may hold the world a little longer than this.
NcclGroups::~NcclGroups() {
  if (world_) world_->close();
}

void NcclGroups::check_alive() const {
  if (world_) world_->check_alive();
}

const std::vector<std::string>& NcclGroups::notes() const {
  static const std::vector<std::string> kNone;
  return world_ ? world_->notes() : kNone;
}

Comm& NcclGroups::add(NcclHandle* handle, const GroupName& group, Lane lane, Axis axis) {
  comms_.push_back(std::make_unique<NcclComm>(*world_, handle, group, axis, lane, traffic_));
  return *comms_.back();
}

Comm& NcclGroups::on(Axis axis, Lane lane) {
  Comm*& comm = found_[size_t(axis)][size_t(lane)];
  if (comm) return *comm;
  const GroupName group = group_of(mesh_, stages_, axis);
  if (group.size() == 1) return *(comm = &self_);
  check(group.members[size_t(group.rank)] == mesh_.rank(), Exit::rank, "[nccl] rank {} has no part in {}", mesh_.rank(),
        group.key);
  const auto planned = plan_.axes.find({axis, lane});
  return *(comm = &add(planned == plan_.axes.end() ? nullptr : handle(planned->second), group, lane, axis));
}

Comm& NcclGroups::pipe(int from, int to, bool gradient) {
  Comm*& comm = pipes_[{from, to, gradient}];
  if (comm) return *comm;
  const auto planned = plan_.pipes.find({from, to, gradient});
  check(planned != plan_.pipes.end() && (mesh_.stage == from || mesh_.stage == to), Exit::rank,
        "[nccl] rank {} of stage {} has no pipe {} > {}", mesh_.rank(), mesh_.stage, from, to);
  return *(comm = &add(handle(planned->second), pipe_group(mesh_, from, to, gradient),
                       pipe_lane(mesh_.stage == from, gradient), Axis::pp));
}

std::unique_ptr<GpuGroups> open_nccl_groups(Exchange& exchange, const Mesh& mesh, const Stages& stages,
                                            Traffic& traffic, const NcclOptions& options) {
  return std::make_unique<NcclGroups>(exchange, mesh, stages, traffic, options);
}

}  // namespace trainer
