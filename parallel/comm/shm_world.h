// The ranks of one host, seen from one of them: their memory, and the one failure that ends all waiting.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/exchange.h"
#include "parallel/comm/shm_memory.h"

namespace trainer {

class ShmWorld {
 public:
  // Collective over the exchange. `ranks_of_host` holds this rank too, and is the same list on all of them. `own` must
  // be reserved. `epoch` counts the restarts of a run; ranks of another epoch are refused. Throws Error(rank).
  ShmWorld(Exchange&, const SharedMemory& own, const std::vector<int>& ranks_of_host, uint32_t epoch = 0);
  // After the lanes have stopped. A peer that still waits for this rank gets an error.
  ~ShmWorld();

  int rank() const;
  uint32_t epoch() const;
  bool on_host(int rank) const;
  const Segment& segment(int rank) const;  // throws Error(rank) for one of another host
  // Whether a waiting rank may spin: each has a core to itself.
  bool cores_suffice() const;

  // Ends every wait of every rank of the host, now and later, with Error(rank, why); the first reason stays. From any
  // thread; also called when the exchange reports a failure.
  void abort(std::string_view why) noexcept;
  // Throws Error(rank) that begins with `what` where the world has failed, or where `peer` has left it.
  void throw_failure(std::string_view what, int peer) const;
  bool failed() const;

 private:
  struct Peers;
  std::shared_ptr<Peers> peers_;  // the exchange's handler may outlive the world
};

}  // namespace trainer
