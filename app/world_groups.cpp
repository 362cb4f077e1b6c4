#include "app/world_groups.h"

#include <algorithm>
#include <numeric>

#include "app/connect.h"
#include "core/base/error.h"
#include "core/base/host.h"
#include "parallel/schedules/schedules.h"

namespace trainer {
namespace {

// By rank. With `tcp`, every rank is a host of its own.
std::vector<int> hosts_of_ranks(const std::string& comm, Exchange& exchange) {
  std::vector<int> host_of = machines_of_ranks(exchange);
  const auto here = std::count(host_of.begin(), host_of.end(), host_of[size_t(exchange.rank())]);
  check(comm != "shm" || here == exchange.size(), Exit::rank,
        "parallel.comm: shm, but {} of {} ranks are on this host ({}): use auto, or start all on one", here,
        exchange.size(), host_name());
  if (comm == "tcp") std::iota(host_of.begin(), host_of.end(), 0);
  GroupName world{"world", exchange.rank(), std::vector<int>(host_of.size())};
  std::iota(world.members.begin(), world.members.end(), 0);
  host_spans(world, host_of);  // every axis counts ranks upwards: what holds for the world holds for all groups
  return host_of;
}

std::vector<int> ranks_with(const std::vector<int>& host_of, int host) {
  std::vector<int> ranks;
  for (size_t r = 0; r < host_of.size(); ++r)
    if (host_of[r] == host) ranks.push_back(int(r));
  return ranks;
}

int rank_elsewhere(const std::vector<int>& host_of, int rank) {  // -1: there is none
  for (size_t r = 0; r < host_of.size(); ++r)
    if (host_of[r] != host_of[size_t(rank)]) return int(r);
  return -1;
}

}  // namespace

Stages stages_of(const Planned& p) {
  return Stages(p.spec, p.model, find_schedule(p.spec.parallel.pipeline), p.program.plans[0].first.microbatches);
}

WorldGroups::WorldGroups(const Planned& p, const Over& over)
    : stages_(stages_of(p)),
      host_of_(hosts_of_ranks(p.spec.parallel.comm, over.exchange)),
      world_(over.exchange, over.own, ranks_with(host_of_, host_of_[size_t(over.exchange.rank())])) {
  const int other = rank_elsewhere(host_of_, over.exchange.rank());
  if (other < 0) {
    groups_ = std::make_unique<ShmGroups>(world_, p.mesh, stages_, over.traffic);
    return;
  }
  network_ = std::make_unique<Network>(over.exchange, world_, own_address_towards(over.exchange.address_of(other)));
  groups_ =
      std::make_unique<HostsGroups>(HostsGroups::Over{world_, *network_, host_of_, over.traffic}, p.mesh, stages_);
}

}  // namespace trainer
