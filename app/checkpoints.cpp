#include "app/checkpoints.h"

#include "core/engine/initialise.h"
#include "core/plan/buckets.h"
#include "core/plan/layout.h"
#include "core/spec/print.h"
#include "parallel/schedules/schedules.h"

namespace trainer {
namespace {

SaveOptions save_options(const RunSpec& spec, const std::string& directory, const Votes& votes) {
  SaveOptions o;
  o.directory = directory;
  o.retention.keep = spec.checkpoint.keep;
  o.retention.keep_every = spec.checkpoint.keep_every;
  if (votes.rank == 0) o.generation = newest_generation(directory) + 1;
  return o;
}

// A slot is one of `cuts` equal slices of its bucket, held by neighbours on dp; each slice has as many holders as fit.
Share share_of(const StatePart& part, const Bucket& bucket, const Mesh& mesh) {
  const int cuts = int(bucket.padded / (part.end - part.begin));
  return {mesh.replica / cuts, mesh.dp / cuts};
}

}  // namespace

StateView state_view(const Program& program, const Model& model, std::span<std::byte> arena) {
  StateView view{model.params, program.buckets, {}};
  for (const StateSlot& s : program.state) {
    if (s.index >= kStaging) continue;
    view.parts.push_back(
        {s.bucket, Role(s.index), make_tensor(arena.data() + s.offset, s.dtype, {s.end - s.begin}), s.begin, s.end});
  }
  return view;
}

StateView state_view(const Planned& p, std::span<std::byte> arena) {
  StateView view = state_view(p.program, p.model, arena);
  view.first_of_tp = p.mesh.slice == 0;
  view.first_of_kv = p.mesh.slice % p.mesh.kv_copies == 0;
  const Stages stages(p.spec, p.model, find_schedule(p.spec.parallel.pipeline), /*microbatches=*/1);
  for (StatePart& part : view.parts) {
    const Bucket& bucket = p.program.buckets[size_t(part.bucket)];
    part.share = counts_bucket(stages, p.mesh, bucket) ? share_of(part, bucket, p.mesh) : Share{0, 0};
  }
  return view;
}

Checkpoint open_named_checkpoint(const std::string& path, const Votes& votes) {
  const std::string step = agree_on_first(votes, [&] {
    const std::vector<StepPath> steps = list_steps(path);
    return steps.empty() ? path : steps.front().path;
  });
  return open_checkpoint(step, votes);
}

Votes votes_by(Exchange& exchange) {
  return {exchange.rank(), exchange.size(), [&](std::string_view mine) { return exchange.all_gather(mine); }};
}

Checkpoints::Checkpoints(Rig& rig, Exchange& exchange, const std::string& directory, std::string tokenizer)
    : rig_(rig),
      state_(*rig.device, static_bytes(rig.planned.program)),
      view_(state_view(rig.planned, state_.bytes())),
      votes_(votes_by(exchange)),
      directory_(directory),
      tokenizer_(std::move(tokenizer)),
      saver_(save_options(rig.planned.spec, directory, votes_), votes_) {}

std::optional<Position> Checkpoints::restore() {
  auto resumed = resume_newest(directory_, view_, votes_);
  if (!resumed) return std::nullopt;
  state_.store();
  refused_ = std::move(resumed->refused);
  const Manifest& manifest = resumed->checkpoint.manifest;
  return Position{manifest.run.step, manifest.run.tokens, manifest.run.data_hash, manifest.state_hash};
}

void Checkpoints::initialise(uint64_t seed) {
  initialise_state(rig_.planned.program, rig_.planned.model, seed, state_.bytes());
  state_.store();
}

void Checkpoints::load_weights(const std::string& path) {
  load_state(open_named_checkpoint(path, votes_), view_, {.weights_only = true}, votes_);
  state_.store();
}

SaveReport Checkpoints::save(const Position& at, int64_t samples) {
  state_.fetch();
  RunState run;
  run.step = at.step;
  run.tokens = at.tokens;
  run.samples = samples;
  run.data_hash = at.data_hash;
  run.plan_hash = rig_.planned.program.hash;
  run.seed = uint64_t(rig_.planned.spec.train.seed);
  run.tokenizer = tokenizer_;
  run.model = model_json(rig_.planned.spec.model);
  run.spec = to_json(rig_.planned.spec);
  return saver_.save(view_, run);
}

}  // namespace trainer
