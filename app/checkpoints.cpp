#include "app/checkpoints.h"

#include "core/spec/print.h"

namespace trainer {
namespace {

SaveOptions save_options(const RunSpec& spec, const std::string& directory) {
  SaveOptions o;
  o.directory = directory;
  o.retention.keep = spec.checkpoint.keep;
  o.retention.keep_every = spec.checkpoint.keep_every;
  o.generation = newest_generation(directory) + 1;
  return o;
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

Checkpoint open_named_checkpoint(const std::string& path) {
  const std::vector<StepPath> steps = list_steps(path);
  return open_checkpoint(steps.empty() ? path : steps.front().path);
}

Checkpoints::Checkpoints(Rig& rig, const std::string& directory, std::string tokenizer)
    : rig_(rig),
      view_(state_view(rig.planned.program, rig.planned.model, rig.arena())),
      directory_(directory),
      tokenizer_(std::move(tokenizer)),
      saver_(save_options(rig.planned.spec, directory)) {}

std::optional<Position> Checkpoints::restore() {
  auto resumed = resume_newest(directory_, view_);
  if (!resumed) return std::nullopt;
  refused_ = std::move(resumed->refused);
  const RunState& run = resumed->checkpoint.manifest.run;
  return Position{run.step, run.tokens, run.data_hash};
}

void Checkpoints::load_weights(const std::string& path) {
  load_state(open_named_checkpoint(path), view_, {.weights_only = true});
}

SaveReport Checkpoints::save(const Position& at, int64_t samples) {
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
