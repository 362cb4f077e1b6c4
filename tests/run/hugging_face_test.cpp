// Hugging Face's models through the whole trainer: import, evaluation, three steps of its own AdamW, and export,
// against what PyTorch computed and stored.
#include <cmath>

#include "app/checkpoints.h"
#include "app/ckpt_hf.h"
#include "app/evaluate.h"
#include "app/step_control.h"
#include "app/wire.h"
#include "core/engine/engine.h"
#include "core/engine/host_feed.h"
#include "io/safetensors_set.h"
#include "tests/data/scratch.h"
#include "tests/support/hugging_face.h"

using namespace trainer;
using namespace trainer::test;
using Reference = HuggingFaceReference;

namespace {

const char* const kModels[] = {"gpt2", "llama", "qwen2", "qwen3", "mistral"};

// The reference's sequences, cut into micro-batches.
class ReferenceFeed final : public HostFeed {
 public:
  explicit ReferenceFeed(const Reference& reference) : reference_(reference) {}

 private:
  // Fields nobody reads have no memory.
  void write(Split, int64_t step, int microbatch, const Batch& batch) override {
    const int64_t T = Reference::kSeqLen, count = batch[BatchField::tokens].elements() / T, first = microbatch * count;
    const std::vector<int32_t> tokens = reference_.sequences("tokens", step, first, count);
    const std::vector<int32_t> targets = reference_.sequences("targets", step, first, count);
    const auto put = [&](BatchField f, int64_t i, auto value) {
      if (batch[f].data) data_as<decltype(value)>(batch[f])[i] = value;
    };
    for (int64_t i = 0; i < count * T; ++i) {
      put(BatchField::tokens, i, tokens[size_t(i)]);
      put(BatchField::targets, i, targets[size_t(i)]);
      put(BatchField::weights, i, 1.0f);
      put(BatchField::positions, i, int32_t(i % T));
      put(BatchField::segments, i, int32_t{0});
      put(BatchField::rows, i, first * T + i);
    }
  }

  const Reference& reference_;
};

// What a YAML with the reference's optimizer would say.
RunSpec training_spec(const Checkpoint& checkpoint, const Reference& reference) {
  const nlohmann::json& o = reference.record["optimizer"];
  RunSpec spec = evaluation_spec(checkpoint, Reference::kSequences, Reference::kSeqLen);
  spec.train.steps = Reference::kSteps;
  spec.train.clip = o["clip"].get<double>();
  spec.optimizer.lr = o["lr"];
  spec.optimizer.betas = o["betas"].get<std::vector<double>>();
  spec.optimizer.eps = o["eps"];
  spec.optimizer.weight_decay = o["weight_decay"];
  return spec;
}

struct Trained {
  std::vector<StepReport> steps;
  Tensors weights;
};

Tensors weights_of(const StateView& view) {
  Tensors weights;
  for (const NamedBox& box : boxes_of(view)) {
    if (box.tensor.starts_with(kOptimizerPrefix)) continue;
    REQUIRE(box.box == whole_box(box.logical));
    Values& values = weights[box.tensor];
    for (int64_t row = 0; row < box.values.rows(); ++row) {
      const float* begin = data_as<float>(box.values) + row * box.values.stride();
      values.insert(values.end(), begin, begin + box.values.row_elements());
    }
  }
  return weights;
}

Trained train(const RunSpec& spec, const std::string& step_directory, const Reference& reference) {
  const Scratch scratch;
  Rig rig = open_rig(plan_run(spec, 1, 0));
  SoloExchange alone;
  Checkpoints(rig, alone, scratch / "checkpoints", "").load_weights(step_directory);
  ReferenceFeed feed(reference);
  Engine engine(rig.planned.program, rig.planned.spec, rig.planned.mesh, rig.planned.model,
                {*rig.device, rig.groups(), feed});
  Trained trained;
  for (int64_t step = 0; step < Reference::kSteps; ++step)
    trained.steps.push_back(
        engine.step(train_key(spec, Reference::kSequences, 1), step_control(spec, step, *spec.train.steps)));
  rig.device->drain();
  trained.weights = weights_of(state_view(rig.planned.program, rig.planned.model, rig.arena()));
  return trained;
}

struct Imported {
  explicit Imported(const std::string& name)
      : reference(name),
        step_directory(import_hugging_face(reference.folder, scratch / "imported")),
        checkpoint(open_checkpoint(step_directory)) {
    install_cpu();
  }
  Scratch scratch;
  Reference reference;
  std::string step_directory;
  Checkpoint checkpoint;
};

std::vector<std::byte> bytes_of(const SafetensorsSet::Place& place) {
  std::vector<std::byte> bytes(place.entry->bytes());
  read_exactly(place.part->file, bytes, place.entry->begin, Exit::checkpoint);
  return bytes;
}

}  // namespace

TEST_CASE("an imported model's logits and gradients are PyTorch's") {
  for (const char* name : kModels) {
    INFO(name);
    const Imported in(name);
    const RunSpec spec = evaluation_spec(in.checkpoint, Reference::kSequences, Reference::kSeqLen);
    ReferenceFeed feed(in.reference);
    const Evaluation evaluation{spec, in.checkpoint, feed};
    write_logits(evaluation, in.scratch / "logits.safetensors");
    const StepReport report = write_gradients(evaluation, in.scratch / "gradients.safetensors");
    CHECK(report.loss == Approx(in.reference.loss(0)).epsilon(1e-5));
    CHECK(report.grad_norm == Approx(in.reference.gradient_norm(0)).epsilon(1e-4));
    const std::string folder = in.scratch / "";
    require_close(read_tensors(folder, "logits.safetensors").at("logits"), in.reference.values.at("logits"), {0, 1e-4});
    in.reference.check_gradients(read_tensors(folder, "gradients.safetensors"));
  }
}

TEST_CASE("three steps on an imported model are PyTorch's") {
  for (const char* name : kModels) {
    INFO(name);
    const Imported in(name);
    const Trained trained = train(training_spec(in.checkpoint, in.reference), in.step_directory, in.reference);
    for (int64_t step = 0; step < Reference::kSteps; ++step) {
      const StepReport& report = trained.steps[size_t(step)];
      CHECK(report.finite);
      CHECK(report.tokens == Reference::kSequences * Reference::kSeqLen);
      CHECK(report.loss == Approx(in.reference.loss(step)).epsilon(1e-5));
      CHECK(report.grad_norm == Approx(in.reference.gradient_norm(step)).epsilon(1e-4));
    }
    in.reference.check_weights(trained.weights);
  }
}

TEST_CASE("recomputing and smaller micro-batches train alike, and bf16 nearly so") {
  const Imported in("llama");
  const RunSpec spec = training_spec(in.checkpoint, in.reference);
  const Trained plain = train(spec, in.step_directory, in.reference);
  const auto check_losses = [&](const RunSpec& other, double tolerance) {
    const Trained trained = train(other, in.step_directory, in.reference);
    for (size_t step = 0; step < plain.steps.size(); ++step)
      CHECK(trained.steps[step].loss == Approx(plain.steps[step].loss).epsilon(tolerance));
  };
  RunSpec recomputed = spec, halved = spec, rounded = spec;
  recomputed.memory.recompute.kind = RecomputeKind::full;
  check_losses(recomputed, 1e-6);
  halved.train.micro_batch = 1;
  check_losses(halved, 1e-6);
  recomputed.train.micro_batch = 1;
  check_losses(recomputed, 1e-6);
  rounded.precision.compute = Precision::bf16;
  check_losses(rounded, 0.02);
}

TEST_CASE("an imported model is exported bit for bit") {
  for (const char* name : kModels) {
    INFO(name);
    const Imported in(name);
    export_hugging_face(in.step_directory, in.scratch / "exported");
    const SafetensorsSet source = open_safetensors_set(in.reference.folder),
                         exported = open_safetensors_set(in.scratch / "exported");
    CHECK(exported.tensors.size() == source.tensors.size());
    for (const auto& [tensor, place] : source.tensors) {
      INFO(tensor);
      REQUIRE(exported.tensors.contains(tensor));
      const SafetensorsSet::Place& found = exported.tensors.at(tensor);
      CHECK(found.entry->type == place.entry->type);
      CHECK(found.entry->shape == place.entry->shape);
      CHECK(bytes_of(found) == bytes_of(place));
    }
  }
}
