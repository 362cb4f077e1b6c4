#include "app/connect.h"

#include "core/base/build_id.h"

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

}  // namespace trainer
