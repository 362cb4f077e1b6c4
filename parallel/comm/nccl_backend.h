// The communicators of GPUs. This header names no CUDA type; parallel/comm/no_nccl stands in where there is no NCCL.
//
// Sums: each rank rounds to the tensor's dtype whenever it adds, in an order that NCCL chooses by element, number of
// ranks, topology, algorithm and protocol. For the same machines and the same choice the bits repeat, and all ranks of
// a group hold the same ones; they are not those of a sum in rank order. `algorithm` and `protocol` fix the choice. Of
// a maximum over f32, f64 or bf16 NaN may get lost.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/stages.h"
#include "parallel/comm/exchange.h"
#include "parallel/comm/traffic.h"

namespace trainer {

class GpuGroups : public Groups {
 public:
  // A stream that waited in a collective goes on when the communicator is aborted, and what it leaves in memory is
  // worthless.
  void check_alive() const override = 0;
  virtual const std::vector<std::string>& notes() const = 0;  // sentences for the run's log
};

struct NcclOptions {
  std::span<std::byte> arena = {};            // registered with every communicator
  int zero = 0;                               // parallel.zero: which axes have work on which lanes follows from it
  bool votes = false;                         // a step updates before the world agrees (post-validation)
  std::string algorithm = {}, protocol = {};  // as NCCL_ALGO and NCCL_PROTO say it; empty: NCCL chooses
  std::string gpu = {};  // names this rank's GPU, in the world: no two ranks may have one. Empty: not checked
};

// "2.28.9". Throws Error(rank) where there is none, with what is missing.
std::string nccl_version();

// Collective over the exchange; on the host thread that issues the plan, with the rank's device current. `traffic`
// and the memory must live as long; the device is drained before the groups end. Bytes are counted in
// `traffic`; seconds are not, for lanes are streams. Throws Error(rank): no NCCL, another version on another rank, two
// ranks on one GPU, a rank that died or gave up, or what NCCL said, with the name of the group.
std::unique_ptr<GpuGroups> open_nccl_groups(Exchange&, const Mesh&, const Stages& stages, Traffic& traffic,
                                            const NcclOptions&);

}  // namespace trainer
