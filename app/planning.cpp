#include "app/planning.h"

#include <algorithm>

#include "core/base/error.h"
#include "io/step_sizes.h"
#include "parallel/planner.h"

namespace trainer {
namespace {

PlanRequest request_of(const RunSpec& spec, const Model& model, const Mesh& mesh) {
  return {.spec = spec, .model = model, .world = mesh.size(), .keys = plan_keys(spec, mesh.dp)};
}

}  // namespace

PlanKey train_key(const RunSpec& spec, int64_t sequences, int replicas) {
  const int64_t pass = spec.train.micro_batch * replicas;
  check(sequences % pass == 0, Exit::spec,
        "train.global_batch: wanted a multiple of micro_batch {} x dp {} ({} sequences), found {}; the next one is {}",
        spec.train.micro_batch, replicas, pass, sequences, (sequences / pass + 1) * pass);
  return {StepKind::train, int(sequences / pass), spec.data.seq_len};
}
PlanKey evaluate_key(const RunSpec& spec) {
  return {StepKind::evaluate, evaluation_microbatches(spec), spec.data.seq_len};
}

PlanKey ahead_of(PlanKey train) {
  train.kind = StepKind::train_ahead;
  return train;
}
PlanKey undo_key(PlanKey train) {
  train.kind = StepKind::undo;
  return train;
}
PlanKey usual_key(const RunSpec& spec, int replicas) {
  const PlanKey first = train_key(spec, StepSizes(spec).sequences(0), replicas);
  return spec.parallel.pipeline.post_validation ? ahead_of(first) : first;
}

bool evaluates(const RunSpec& spec) { return spec.data.split.has_value() || !spec.data.valid.empty(); }

std::vector<PlanKey> plan_keys(const RunSpec& spec, int replicas) {
  std::vector<PlanKey> keys;
  const auto add = [&](const PlanKey& key) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  };
  const StepSizes sizes(spec);
  add(train_key(spec, sizes.sequences(0), replicas));
  for (const RampStep& r : spec.train.ramp) add(train_key(spec, sequences_per_step(spec, r.tokens), replicas));
  if (spec.parallel.pipeline.post_validation) {
    for (const PlanKey& train : std::vector(keys)) add(ahead_of(train));
    add(undo_key(keys.front()));
  }
  if (evaluates(spec)) add(evaluate_key(spec));
  return keys;
}

int64_t total_steps(const RunSpec& spec) {
  if (spec.train.steps) return *spec.train.steps;
  const StepSizes sizes(spec);
  const int64_t sequences = (*spec.train.tokens + spec.data.seq_len - 1) / spec.data.seq_len;
  int64_t low = 0, high = 1;
  while (sizes.sequences_before(high) < sequences) high *= 2;
  while (low + 1 < high) {
    const int64_t middle = (low + high) / 2;
    (sizes.sequences_before(middle) < sequences ? low : high) = middle;
  }
  return high;
}

// A spec with `dp: auto` may be tried on one rank as it is.
void check_world(const RunSpec& spec, int world) {
  const Mesh mesh = Mesh::of(spec, world, 0);
  const ParallelSpec& p = spec.parallel;
  check(p.zero == 0 || mesh.dp > 1 || (world == 1 && !p.dp), Exit::spec,
        "parallel.zero: {} divides state among the ranks of dp, but dp is 1: use zero 0, or more ranks", p.zero);
  plan_keys(spec, mesh.dp);
}

Program plan_state(const RunSpec& spec, const Model& model) {
  return make_program({.spec = spec, .model = model, .world = 1, .keys = {evaluate_key(spec)}}, 0);
}

PlannedWorld plan_world(const RunSpec& spec, int world, int rank) {
  check_world(spec, world);
  PlannedWorld w{{.spec = spec, .mesh = Mesh::of(spec, world, rank), .model = {}, .program = {}}, {}};
  w.rank.model = build_model(spec, w.rank.mesh);
  const PlanRequest request = request_of(w.rank.spec, w.rank.model, w.rank.mesh);
  w.stages = make_stage_programs(request);
  w.rank.program = program_of_rank(request, w.stages, rank);
  return w;
}

Planned plan_run(const RunSpec& spec, int world, int rank) { return plan_world(spec, world, rank).rank; }

void prepare_kernels(const Planned& p, Device& device) {
  prepare(p.program, request_of(p.spec, p.model, p.mesh), p.mesh, device);
}

MeterCounts step_counts(const Planned& p) {
  const PlanRequest request = request_of(p.spec, p.model, p.mesh);
  return measure(p.program, request, p.mesh, request.keys.front());
}

}  // namespace trainer
