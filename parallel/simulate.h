// All ranks' programs against one clock. A send waits for its receive and a collective for all its members (NCCL's
// sends are not buffered): what cannot meet is a deadlock.
#pragma once
#include <string>

#include "parallel/durations.h"

namespace trainer {

struct Timeline {
  double makespan = 0, bubble = 0;          // bubble: mean idle share of the compute lanes
  double span = 0;                          // the longest of a rank's first to its last block: a step, where no rank
                                            // waits for others between two of them
  std::vector<double> busy;                 // compute lane, per rank
  std::string stuck;                        // "" or what each stuck lane stands at
  std::vector<std::vector<InstrId>> order;  // per rank: by start, in one order of the world
  std::vector<std::vector<Span>> spans;     // per rank and instruction
};

struct World {  // one entry per rank of both
  const RunSpec& spec;
  const Model& model;
  Schedule schedule;
  std::vector<Mesh> meshes;
  std::vector<const Program*> programs;
};
// A world of one rank per stage.
World world_of_stages(const RunSpec&, const Model&, const Mesh& first, const std::vector<Program>& of_stages);
World world_of(const RunSpec&, const Model&, const std::vector<Program>& all_ranks);

// Whether instructions of other lanes may start before the compute instruction that stands before them in the list.
enum class Anchored : bool { no, yes };
// Plans must be linked. Throws Error(spec) where two ranks meet in a group with different instructions.
Timeline clock_world(const World&, const PlanKey&, const Durations&, Anchored = Anchored::no);
Timeline clock_world(const World&, const PlanKey&, const Costs&, Anchored = Anchored::no);

// For every plan: throws Error(spec) on a deadlock, a mismatched meeting, or a bucket whose norm is not counted exactly
// once.
void verify_world(const World&);

}  // namespace trainer
