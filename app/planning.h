// From a spec to a program: what `trainer plan` prints is what `trainer --config` runs.
#pragma once
#include "core/device/meter.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace trainer {

struct Planned {
  RunSpec spec;
  Mesh mesh;
  Model model;
  Program program;
};

// Whether the spec's degrees and batches fit a world of so many ranks: what every rank of it would find. Throws
// Error(spec).
void check_world(const RunSpec&, int world);

// Kernels must be installed: they say how much scratch they want. Throws Error(spec) where the spec cannot be planned.
Planned plan_run(const RunSpec&, int world, int rank);

// And a program of each stage, for who looks at the whole world.
struct PlannedWorld {
  Planned rank;
  std::vector<Program> stages;
};
PlannedWorld plan_world(const RunSpec&, int world, int rank);

// What one training step costs: run on the meter, so only for who prints it.
MeterCounts step_counts(const Planned&);

// Lets the device's kernels prepare for every plan of the program, before step 0 and before the arena holds anything.
void prepare_kernels(const Planned&, Device&);

// Buckets and state of a world of one, for who has no plan to run (app/generate, app/evaluate).
Program plan_state(const RunSpec&, const Model&);

// The plans a run needs: a training step for every batch of the ramp, and an evaluation where there is something to
// evaluate on. With post-validation also one that updates ahead for each, and the first one's undo, which serves all.
std::vector<PlanKey> plan_keys(const RunSpec&, int replicas);
PlanKey train_key(const RunSpec&, int64_t sequences, int replicas);
PlanKey evaluate_key(const RunSpec&);
PlanKey ahead_of(PlanKey train);
PlanKey undo_key(PlanKey train);
// Of the first batch, as most steps run it.
PlanKey usual_key(const RunSpec&, int replicas);
bool evaluates(const RunSpec&);

// Steps until train.steps or train.tokens is reached; the ramp's batches count.
int64_t total_steps(const RunSpec&);

// Heap, code and libraries: what a process may use beside its arena. Checked at the end of a run.
inline constexpr size_t kAllowanceBytes = size_t{160} << 20;

}  // namespace trainer
