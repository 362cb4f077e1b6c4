// All ranks' programs against one clock. A send waits for its receive and a collective for all its members (NCCL's
// sends are not buffered): what cannot meet is a deadlock.
#pragma once
#include <string>

#include "core/plan/stages.h"

namespace trainer {

// Durations of all blocks of a stage's share: forward, the halves of backward, what is recomputed; of one message, one
// collective, one snapshot slice. The unit is the caller's.
struct Costs {
  double f = 1, b = 1, w = 1, recompute = 1, comm = 0, collective = 0, snapshot = 0;
  // Nothing starts before the compute instruction that stands before it in the list.
  bool anchored = false;
};

struct Timeline {
  double makespan = 0, bubble = 0;          // bubble: mean idle share of the compute lanes
  std::vector<double> busy;                 // compute lane, per rank
  std::string stuck;                        // "" or what each stuck lane stands at
  std::vector<std::vector<InstrId>> order;  // per rank: by start, in one order of the world
};

struct World {  // one entry per rank of both
  const RunSpec& spec;
  const Model& model;
  const Schedule& schedule;
  std::vector<Mesh> meshes;
  std::vector<const Program*> programs;
};
World world_of(const RunSpec&, const Model&, const std::vector<Program>& all_ranks);

// Plans must be linked. Throws Error(spec) where two ranks meet in a group with different instructions.
Timeline clock_world(const World&, const PlanKey&, const Costs&);

// For every plan: throws Error(spec) on a deadlock, a mismatched meeting, or a bucket whose norm is not counted exactly
// once.
void verify_world(const World&);

}  // namespace trainer
