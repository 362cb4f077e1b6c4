#include "app/evaluate.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/checkpoints.h"
#include "app/journal.h"
#include "app/wire.h"
#include "core/engine/engine.h"
#include "core/engine/forward_pass.h"
#include "core/ops/elementwise.h"
#include "io/feed.h"
#include "io/model_json.h"
#include "io/tensor_file.h"

namespace trainer {
namespace {

struct Options {
  std::string checkpoint, data, logits, gradients;
  int64_t batch = 0, seq_len = 0;  // 0: see shape_of
  bool json = false;
};

// Both splits are the whole file; `valid` comes in the file's order.
class FirstBatch final : public Feed {
 public:
  explicit FirstBatch(const RunSpec& spec) : feed_(open_dataset(spec.data, spec.model.vocab_size), spec) {}
  void fill(Stream& stream, Split, int64_t, int, const Batch& batch) override {
    feed_.fill(stream, Split::valid, 0, 0, batch);
  }
  void stage(Split, int64_t, int, const Batch& batch) override { feed_.stage(Split::valid, 0, 0, batch); }

 private:
  TokenFeed feed_;
};

// One training step whose learning rate is zero leaves every bucket's gradient where it was reduced.
StateView gradients_of(const Planned& p, std::span<std::byte> arena) {
  StateView view{p.model.params, p.program.buckets, {}};
  const Plan& plan = *find_plan(p.program, plan_keys(p.spec, 1).front());
  for (const Instr& i : plan.code) {
    if (i.verb != Verb::norm) continue;
    for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u) {
      const Slot& slot = plan.slots[plan.uses[u].slot];
      if (slot.kind != SlotClass::gradient) continue;
      const int64_t size = p.program.buckets[size_t(i.bucket)].size;
      view.parts.push_back(
          {i.bucket, Role::weight, make_tensor(arena.data() + plan.uses[u].offset, slot.dtype, {size}), 0, size});
    }
  }
  return view;
}

// The first batch is that of the run that made the checkpoint, if a run did. For a model that was imported it is one
// sequence, as long as the model and the data allow.
struct BatchShape {
  int64_t batch, seq_len;
};
BatchShape shape_of(const Checkpoint& checkpoint, const Options& o) {
  const nlohmann::json& run = checkpoint.manifest.run.spec;
  const auto from_run = [&](const char* section, const char* key, int64_t otherwise) {
    return run.is_object() ? run.at(section).at(key).get<int64_t>() : otherwise;
  };
  const int64_t longest = std::min(model_from_json(checkpoint.manifest.run.model, checkpoint.path).max_seq_len,
                                   std::max<int64_t>(1, TokenFile(o.data).tokens() - 1));
  return {o.batch > 0 ? o.batch : from_run("train", "micro_batch", 1),
          o.seq_len > 0 ? o.seq_len : from_run("data", "seq_len", longest)};
}

int run(const Options& o) {
  install_cpu();
  const Checkpoint checkpoint = open_named_checkpoint(o.checkpoint);
  const BatchShape shape = shape_of(checkpoint, o);
  RunSpec spec = evaluation_spec(checkpoint, shape.batch, shape.seq_len);
  spec.data.train = spec.data.valid = {{o.data, 1}};
  FirstBatch feed(spec);
  const Evaluation evaluation{spec, checkpoint, feed};
  if (!o.logits.empty()) write_logits(evaluation, o.logits);
  const StepReport report = write_gradients(evaluation, o.gradients);
  if (o.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"loss", report.loss},
                                              {"loss_hex", hex_float(report.loss)},
                                              {"grad_norm", report.grad_norm},
                                              {"tokens", int64_t(report.tokens)}}
                           .dump(1));
  else
    fmt::print("loss {:.6f}  grad norm {:.6f}  over {} tokens\n", report.loss, report.grad_norm,
               int64_t(report.tokens));
  return int(Exit::done);
}

}  // namespace

RunSpec evaluation_spec(const Checkpoint& checkpoint, int64_t batch, int64_t seq_len) {
  RunSpec spec = decoding_spec(model_from_json(checkpoint.manifest.run.model, checkpoint.path));
  spec.data.seq_len = seq_len > 0 ? seq_len : spec.model.max_seq_len;
  check(spec.data.seq_len <= spec.model.max_seq_len, Exit::usage, "--seq-len: wanted at most the model's {}, found {}",
        spec.model.max_seq_len, seq_len);
  spec.train.steps = 1;
  spec.train.micro_batch = batch;
  spec.train.global_batch = {batch, false};
  spec.train.clip = std::nullopt;
  spec.train.eval_sequences = std::nullopt;
  spec.model.dropout = 0;
  return spec;
}

void write_logits(const Evaluation& e, const std::string& path) {
  const RunSpec& spec = e.spec;
  const Mesh mesh;
  const Model model = build_model(spec, mesh);
  const ForwardLayout layout =
      lay_out_forward(plan_state(spec, model), model, spec.train.micro_batch * spec.data.seq_len);
  const auto memory = open_private_memory();
  const auto device = open_cpu(layout.program, memory->reserve(layout.program.arena_bytes));
  const auto groups = open_solo_groups();
  load_state(e.checkpoint, state_view(layout.program, model, device->arena()), {.weights_only = true});
  ForwardPass pass(layout, model, *device, *groups);
  e.feed.fill(device->lane(Lane::load), Split::valid, 0, 0, pass.batch());
  device->drain();
  const Tensor all = pass.run(Phase::evaluate);
  Tensor logits = column_part(all, 0, spec.model.vocab_size);
  write_tensor_file(path, {{"logits", {spec.train.micro_batch, spec.data.seq_len, spec.model.vocab_size}, logits}});
}

StepReport write_gradients(const Evaluation& e, const std::string& path) {
  Rig rig = open_rig(plan_run(e.spec, 1, 0));
  const Planned& p = rig.planned;
  load_state(e.checkpoint, state_view(p.program, p.model, rig.arena()), {.weights_only = true});
  Engine engine(p.program, p.spec, p.mesh, p.model, {*rig.device, rig.groups(), e.feed});
  Control control{};
  control.bias1 = control.bias2 = 1;
  control.max_norm = std::numeric_limits<float>::infinity();
  const StepReport report = engine.step(plan_keys(e.spec, 1).front(), control);
  rig.device->drain();
  const StateView view = gradients_of(p, rig.arena());
  for (const StatePart& part : view.parts)
    launch(rig.device->lane(Lane::compute), Scale{part.values, float(1 / report.tokens)});
  rig.device->drain();
  if (!path.empty()) write_boxes_file(path, boxes_of(view));
  return report;
}

void add_evaluate_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("eval", "loss, logits and gradients of the data's first batch, in fp32");
  auto o = std::make_shared<Options>();
  command->add_option("--checkpoint", o->checkpoint, "step directory, or a directory of steps: its newest")->required();
  command->add_option("--data", o->data, "prefix of a .bin/.idx pair")->required();
  command->add_option("--batch", o->batch, "sequences; default: the run's micro-batch, or 1");
  command->add_option("--seq-len", o->seq_len,
                      "tokens of a sequence; default: the run's, or as many as model and data allow");
  command->add_option("--logits", o->logits, "write the logits [batch, tokens, vocabulary] to this safetensors file");
  command->add_option("--gradients", o->gradients,
                      "write every parameter's gradient of the mean loss to this safetensors file");
  command->add_flag("--json", o->json, "print one JSON object");
  command->callback([o, &exit_code] { exit_code = run(*o); });
}

}  // namespace trainer
