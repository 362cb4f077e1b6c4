// From a place in the world to a connection with the others.
#pragma once
#include <memory>
#include <string>

#include "app/place.h"
#include "parallel/comm/rendezvous.h"

namespace trainer {

// The options to meet the others of `place` with. `spec`: what must be the same on all ranks.
RendezvousOptions rendezvous_options(const Place& place, const std::string& spec);

// A world of one needs no others: SoloExchange.
std::unique_ptr<Exchange> connect_ranks(const Place& place, const std::string& spec);

}  // namespace trainer
