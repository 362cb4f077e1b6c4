// The programs of a world, made by any of its ranks from the spec alone.
//
// Per stage: buckets and state, the passes' list, its uses. Reuse of memory can deadlock two ranks whose lists are
// sound alone, so the lists of all stages are put into one order of the world first (a clock that knows dependencies of
// data only); then come offsets, then waits: of data, of memory and of meetings, all point backwards in that order.
// Replicas of a stage differ only in which elements of the state they hold.
#pragma once
#include "core/device/meter.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace trainer {

struct PlanRequest {
  const RunSpec& spec;
  const Model& model;  // of any rank: ranks of one slice of tp hold the same shapes
  int world = 1;
  std::vector<PlanKey> keys;  // staging slots exist where one of them takes snapshots
};

// Of one rank of each stage, the first: every other rank of a stage runs the same instructions. Throws Error(spec).
std::vector<Program> make_stage_programs(const PlanRequest&);
// A rank's, out of them: the world is sound (verify_world) and the rank's program proven (verify). Throws Error(spec).
Program program_of_rank(const PlanRequest&, const std::vector<Program>& of_stages, int rank);
inline Program make_program(const PlanRequest& r, int rank) { return program_of_rank(r, make_stage_programs(r), rank); }
// Of all ranks; not proven, for whoever asks for a world wants to look at it.
std::vector<Program> make_programs(const PlanRequest&);

// What a plan costs: it is issued by the engine on the meter, which counts and computes nothing.
MeterCounts measure(const Program&, const PlanRequest&, const Mesh&, const PlanKey&);

// Issues every plan of the request once without running it, so that the device's kernels prepare (core/ops/kernel.h).
// What the arena holds is lost.
void prepare(const Program&, const PlanRequest&, const Mesh&, Device&);

}  // namespace trainer
