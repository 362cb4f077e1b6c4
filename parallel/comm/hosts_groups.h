// The groups of a rank whose world lies on several hosts: a group within a host uses shared memory, one that spans
// hosts the network as well.
#pragma once
#include "parallel/comm/hosts_comm.h"
#include "parallel/comm/shm_groups.h"

namespace trainer {

class HostsGroups final : public Groups {
 public:
  // All must live as long. `host_of` numbers the host of each rank; ranks of one number are those of `world`.
  struct Over {
    ShmWorld& world;
    Network& network;
    std::vector<int> host_of;
    Traffic& traffic;
  };
  HostsGroups(const Over& over, const Mesh& mesh, const Stages& stages)
      : over_(over), mesh_(mesh), stages_(stages), local_(over.world, mesh, stages, over.traffic) {}
  Comm& on(Axis, Lane) override;
  Comm& pipe(int from_stage, int to_stage, bool gradient) override;

 private:
  const Over over_;
  const Mesh mesh_;
  const Stages& stages_;
  ShmGroups local_;
  std::array<std::array<Comm*, kLanes>, kAxes> found_{};
  std::map<std::array<int, 3>, Comm*> pipes_;
  std::vector<std::unique_ptr<Comm>> comms_;
};

}  // namespace trainer
