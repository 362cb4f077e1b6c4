// The groups of a world of several CPU ranks: over the shared memory of each host, and over the network between hosts.
#pragma once
#include <memory>
#include <vector>

#include "app/planning.h"
#include "core/plan/stages.h"
#include "parallel/comm/exchange.h"
#include "parallel/comm/hosts_groups.h"
#include "parallel/comm/network.h"
#include "parallel/comm/shm_groups.h"
#include "parallel/comm/traffic.h"

namespace trainer {

// The stages that a planned run's pipes connect.
Stages stages_of(const Planned&);

class WorldGroups final : public Groups {
 public:
  struct Over {
    const SharedMemory& own;
    Exchange& exchange;
    Traffic& traffic;
  };
  // Collective. Throws Error(rank) where parallel.comm asks for what the placement of ranks does not allow.
  WorldGroups(const Planned&, const Over&);
  Comm& on(Axis axis, Lane lane) override { return groups_->on(axis, lane); }
  Comm& pipe(int from, int to, bool gradient) override { return groups_->pipe(from, to, gradient); }

 private:
  Stages stages_;
  std::vector<int> host_of_;  // by rank
  ShmWorld world_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Groups> groups_;
};

}  // namespace trainer
