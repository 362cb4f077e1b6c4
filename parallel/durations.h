// How long the instructions of a plan take: what a clock of plans asks.
#pragma once
#include <map>
#include <vector>

#include "core/model/block_cost.h"
#include "core/plan/stages.h"

namespace trainer {

class Durations {
 public:
  virtual ~Durations() = default;
  // Of an instruction of `rank`; of one where ranks meet, from when the last of them is there.
  virtual double of(const Mesh& rank, const Instr&) const = 0;
};

// Durations of all blocks of a stage's share: forward, the halves of backward, what is recomputed; of one message, one
// collective, one snapshot slice. The unit is the caller's.
struct Costs {
  double f = 1, b = 1, w = 1, recompute = 1, comm = 0, collective = 0, snapshot = 0;
};

class UniformDurations final : public Durations {
 public:
  UniformDurations(const Stages&, const Model&, const Costs&);
  double of(const Mesh&, const Instr&) const override;

 private:
  struct Halves {
    int inputs = 0, weights = 0;  // blocks of a position that have each half: a stage's b and w are shared among them
  };
  const Stages stages_;
  const Costs costs_;
  std::vector<Halves> halves_;
};

// A rank's device and its way to other ranks.
struct Machine {
  std::string_view name;
  double flops = 0;       // a second, of dense products in bf16
  double bytes = 0;       // a second, of the memory
  double link_bytes = 0;  // a second and direction, to another rank
  double latency = 0;     // seconds of a message
};
// Throws Error(usage) that lists the known ones.
const Machine& find_machine(std::string_view name);

// Rooflines: a block takes what its FLOPs or its bytes take (core/model/block_cost.h), a collective what a ring of the
// group takes (Thakur, Rabenseifner, Gropp 2005). `world` is any rank's mesh of the world that is simulated: the sizes
// of its groups, whatever ranks the clock has.
class MachineDurations final : public Durations {
 public:
  MachineDurations(const RunSpec&, const Model&, const Program&, const Mesh& world, const Machine&);
  double of(const Mesh&, const Instr&) const override;
  // The same machine with messages and collectives that take no time.
  void silence() { silent_ = true; }

 private:
  double roof(const Cost&) const;
  double ring(double bytes, int ranks, int rounds) const;
  double bucket_bytes(const Instr&, DType) const;
  double talk(const Instr&) const;

  const RunSpec& spec_;
  const Program& program_;
  const Mesh world_;
  const Machine& machine_;
  const std::vector<BlockCost> blocks_;
  std::vector<double> border_bytes_;  // by block: what enters it
  bool silent_ = false;
};

}  // namespace trainer
