#include "app/connect.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "app/cores.h"
#include "core/base/build_id.h"
#include "core/base/error.h"
#include "core/base/host.h"

namespace trainer {

RendezvousOptions rendezvous_options(const Place& place, const std::string& spec) {
  RendezvousOptions o;
  o.world = place.world;
  o.rank = place.rank;
  o.host = place.host;
  o.coordinator = place.coordinator;
  o.ports = place.ports;
  o.job = place.job;
  o.restart = place.restart;
  o.spec = spec;
  o.build = build_id();
  return o;
}

std::unique_ptr<Exchange> connect_ranks(const Place& place, const std::string& spec) {
  if (place.world == 1) return std::make_unique<SoloExchange>();
  return std::make_unique<Rendezvous>(rendezvous_options(place, spec));
}

std::vector<int> machines_of_ranks(Exchange& exchange) {
  const std::vector<std::string> machines = exchange.all_gather(machine_id());
  std::vector<int> numbers;
  for (const std::string& machine : machines)
    numbers.push_back(int(std::find(machines.begin(), machines.end(), machine) - machines.begin()));
  return numbers;
}

std::vector<int> ranks_of_machine(Exchange& exchange) {
  const std::vector<int> machines = machines_of_ranks(exchange);
  std::vector<int> ranks;
  for (size_t r = 0; r < machines.size(); ++r)
    if (machines[r] == machines[size_t(exchange.rank())]) ranks.push_back(int(r));
  return ranks;
}

MachineShare share_machine(Exchange& exchange) {
  if (exchange.size() == 1) return {};
  const std::vector<int> here = ranks_of_machine(exchange);
  const std::vector<std::string> said = exchange.all_gather(fmt::format("{}", fmt::join(allowed_cores(), " ")));
  std::vector<std::vector<int>> allowed;
  int mine = 0;
  for (const int rank : here) {
    if (rank == exchange.rank()) mine = int(allowed.size());
    std::istringstream in(said[size_t(rank)]);
    allowed.emplace_back(std::istream_iterator<int>(in), std::istream_iterator<int>());
  }
  const CoreShare share = divide_cores(allowed, mine);
  use_cores(share.cores);
  return {mine, int(here.size()), share.ranks};
}

}  // namespace trainer
