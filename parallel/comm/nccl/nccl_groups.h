// The groups of a rank on GPUs: opened all at once, for a split of the world is an operation of all its ranks.
#pragma once
#include <array>
#include <map>
#include <memory>

#include "parallel/comm/nccl/nccl_comm.h"
#include "parallel/comm/self.h"

namespace trainer {

class NcclGroups final : public GpuGroups {
 public:
  NcclGroups(Exchange&, const Mesh&, const Stages&, Traffic&, const NcclOptions&);
  ~NcclGroups() override;
  // A group of one makes no call of NCCL.
  Comm& on(Axis, Lane) override;
  Comm& pipe(int from_stage, int to_stage, bool gradient) override;
  void check_alive() const override;
  const std::vector<std::string>& notes() const override;
  MovedBytes moved() const override { return traffic_.moved(); }
  void add_moved(const MovedBytes& more) override { traffic_.add(more); }

 private:
  NcclHandle* handle(int split) const { return split == NcclPlan::kWorld ? &world_->world() : handles_[size_t(split)]; }
  Comm& add(NcclHandle*, const GroupName&, Lane, Axis);

  const Mesh mesh_;
  const Stages stages_;
  Traffic& traffic_;
  const NcclPlan plan_;
  SelfComm self_;
  std::shared_ptr<NcclWorld> world_;  // null: a world of one
  std::vector<NcclHandle*> handles_;  // by split
  std::array<std::array<Comm*, kLanes>, kAxes> found_{};
  std::map<NcclPlan::Pipe, Comm*> pipes_;
  std::vector<std::unique_ptr<Comm>> comms_;
};

}  // namespace trainer
