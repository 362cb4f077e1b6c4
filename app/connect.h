// From a place in the world to a connection with the others.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "app/place.h"
#include "parallel/comm/rendezvous.h"

namespace trainer {

// The options to meet the others of `place` with. `spec`: what must be the same on all ranks.
RendezvousOptions rendezvous_options(const Place& place, const std::string& spec);

// A world of one needs no others: SoloExchange.
std::unique_ptr<Exchange> connect_ranks(const Place& place, const std::string& spec);

// By rank, the number of its machine: the first rank on it. Collective.
std::vector<int> machines_of_ranks(Exchange&);
// The ranks of this rank's machine, ascending. Collective.
std::vector<int> ranks_of_machine(Exchange&);

// This rank among those of its machine.
struct MachineShare {
  int rank = 0, ranks = 1;
  int ranks_on_cores = 1;  // that use the same cores: 1, or all of the machine
};
// Pins this process to its share of the machine's cores, where there are enough for all of its ranks. Collective.
MachineShare share_machine(Exchange&);

}  // namespace trainer
