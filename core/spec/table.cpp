#include "core/spec/table.h"

namespace trainer {
namespace {

const Condition kLlama{"model.family: llama", [](const RunSpec& s) { return s.model.family == Family::llama; }};
const Condition kScaled{"model.rope.scaling.kind: llama3", [](const RunSpec& s) {
                          return s.model.family == Family::llama && s.model.rope.scaling.kind != RopeScalingKind::none;
                        }};
const Condition kWsd{"schedule.kind: wsd", [](const RunSpec& s) { return s.schedule.kind == ScheduleKind::wsd; }};
const Condition kDecays{"a schedule.kind that decays",
                        [](const RunSpec& s) { return s.schedule.kind != ScheduleKind::constant; }};

Type<Family> family() { return one_of<Family>({{"gpt2", Family::gpt2}, {"llama", Family::llama}}, {"deepseek"}); }
Type<Precision> precision(std::vector<std::string> unbuilt = {}) {
  return one_of<Precision>({{"fp32", Precision::fp32}, {"bf16", Precision::bf16}}, std::move(unbuilt));
}
Type<ScheduleKind> schedule_kind() {
  return one_of<ScheduleKind>({{"constant", ScheduleKind::constant},
                               {"linear", ScheduleKind::linear},
                               {"cosine", ScheduleKind::cosine},
                               {"wsd", ScheduleKind::wsd},
                               {"inverse_sqrt", ScheduleKind::inverse_sqrt}});
}
Type<DecayShape> decay_shape() {
  return one_of<DecayShape>(
      {{"linear", DecayShape::linear}, {"cosine", DecayShape::cosine}, {"1-sqrt", DecayShape::one_minus_sqrt}});
}
Type<PipelineSpec> pipeline_schedule() {
  const auto kind = one_of<PipelineKind>({{"gpipe", PipelineKind::gpipe},
                                          {"1f1b", PipelineKind::one_f_one_b},
                                          {"interleaved", PipelineKind::interleaved},
                                          {"interleaved_1f1b", PipelineKind::interleaved},
                                          {"zb_h1", PipelineKind::zb_h1},
                                          {"zb_h2", PipelineKind::zb_h2},
                                          {"zb_v", PipelineKind::zb_v},
                                          {"zb_auto", PipelineKind::zb_auto},
                                          {"dualpipe_v", PipelineKind::dualpipe_v}});
  const auto file = text();
  const nlohmann::json map = {{"type", "object"},
                              {"properties", {{"custom", file.schema}}},
                              {"required", {"custom"}},
                              {"additionalProperties", false}};
  return {.read =
              [=](const Node& node, PipelineSpec& pipeline, const Reading& reading) {
                if (node.kind != NodeKind::map) return kind.read(node, pipeline.schedule, reading);
                if (node.entries.size() != 1 || node.entries[0].key != "custom") {
                  reading.wrong(node.entries.empty() ? node.mark : node.entries[0].mark, "{custom: FILE}",
                                "another map", "write the name of a schedule, or {custom: FILE}");
                  return false;
                }
                if (!file.read(node.entries[0].value, pipeline.file, reading.inside(".custom"))) return false;
                pipeline.schedule = PipelineKind::custom;
                return true;
              },
          .write =
              [=](const PipelineSpec& pipeline) {
                const bool custom = pipeline.schedule == PipelineKind::custom;
                return custom ? nlohmann::json{{"custom", pipeline.file}} : kind.write(pipeline.schedule);
              },
          .schema = {{"anyOf", {kind.schema, map}}},
          .legal = kind.legal + " | {custom: FILE}"};
}
Type<DeviceChoice> device_choice() {
  return one_of<DeviceChoice>(
      {{"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}});
}

Type<Source> source() {
  return record<Source>({
      TRAINER_KEY(Source, path, text(), "Prefix of a .bin/.idx pair.", required()),
      TRAINER_KEY(Source, weight, real({.open_low = true}), "Share of the samples, relative to the other sources."),
  });
}
Type<RampStep> ramp_step() {
  return record<RampStep>({
      TRAINER_KEY(RampStep, tokens, tokens(0), "From this many tokens on.", required()),
      TRAINER_KEY(RampStep, global_batch, batch(), "The batch from there on.", required()),
  });
}

// `valid: {split: 0.9}` is another way to write `split: 0.9`.
Type<DataSpec> valid_sources() {
  const auto list = list_of(source());
  const auto split = real({.low = 0, .high = 1, .open_low = true, .open_high = true});
  const nlohmann::json map = {{"type", "object"},
                              {"properties", {{"split", split.schema}}},
                              {"required", {"split"}},
                              {"additionalProperties", false}};
  return {.read =
              [=](const Node& node, DataSpec& data, const Reading& reading) {
                if (node.kind != NodeKind::map) return list.read(node, data.valid, reading);
                if (node.entries.size() != 1 || node.entries[0].key != "split") {
                  reading.wrong(node.mark, "a list of sources or {split: 0.9}", "another map",
                                "write [{path: PREFIX}] or {split: 0.9}");
                  return false;
                }
                double value = 0;
                if (!split.read(node.entries[0].value, value, reading.inside(".split"))) return false;
                data.split = value;
                return true;
              },
          .write = [=](const DataSpec& data) { return list.write(data.valid); },
          .schema = {{"anyOf", {list.schema, map}}},
          .legal = list.legal + ", or {split: number}"};
}

#define KEY(path, ...) TRAINER_KEY(RunSpec, path, __VA_ARGS__)

// clang-format off
std::vector<Key<RunSpec>> make_table() {
  const auto file_or_none = or_word("none", text());
  const auto on_off = boolean();
  return {
      KEY(model.family, family(), "Architecture: gpt2 (learned positions, LayerNorm, GELU, biases) or llama (RMSNorm, RoPE, SwiGLU; also Qwen and Mistral).", required()),
      KEY(model.num_layers, integer({1, 10'000}), "Transformer layers: an attention and an MLP block each.", required()),
      KEY(model.hidden_size, integer({1, 1 << 20}), "Width of the residual stream.", required()),
      KEY(model.num_heads, integer({1, 1 << 14}), "Query heads.", required()),
      KEY(model.num_kv_heads, integer({1, 1 << 14}), "Key and value heads; each serves num_heads / num_kv_heads query heads.", derived("model.num_heads")),
      KEY(model.head_dim, integer({1, 1 << 14}), "Width of a head.", derived("model.hidden_size / model.num_heads")),
      KEY(model.ffn_hidden_size, integer({1, 1 << 22}), "Width of the MLP.", derived("4 * model.hidden_size for gpt2; required for llama")),
      KEY(model.vocab_size, integer({1, 1 << 24}), "Rows of the embedding; may exceed the tokenizer's vocabulary.", required()),
      KEY(model.max_seq_len, integer({1, 1 << 24}), "Longest sequence; for gpt2 the rows of the position table.", required()),
      KEY(model.tie_embeddings, on_off, "The head uses the embedding's weights.", derived("true for gpt2, false for llama")),
      KEY(model.norm_eps, real({.high = 1, .open_low = true}), "Added to the variance in LayerNorm and RMSNorm."),
      KEY(model.qkv_bias, on_off, "Biases on the query, key and value projections.", derived("true for gpt2, false for llama")),
      KEY(model.qk_norm, on_off, "RMSNorm over each head's queries and keys (llama only)."),
      KEY(model.sliding_window, or_word("none", integer({.low = 1})), "A position attends to this many positions, itself included."),
      KEY(model.dropout, real({.high = 1, .open_high = true}), "Probability that an activation is dropped in training."),
      KEY(model.init_std, real({.high = 10, .open_low = true}), "Standard deviation of initial weights; residual projections are scaled down by sqrt(2 * num_layers)."),
      KEY(model.rope.theta, real({.open_low = true}), "Base of the rotary frequencies.", only(kLlama)),
      KEY(model.rope.scaling.kind, one_of<RopeScalingKind>({{"none", RopeScalingKind::none}, {"llama3", RopeScalingKind::llama3}}), "How the frequencies are stretched for long contexts.", only(kLlama)),
      KEY(model.rope.scaling.factor, real({.low = 1}), "Low frequencies are divided by this.", only(kScaled)),
      KEY(model.rope.scaling.low_freq_factor, real({.open_low = true}), "Wavelengths above original_max_seq_len / this are stretched in full.", only(kScaled)),
      KEY(model.rope.scaling.high_freq_factor, real({.open_low = true}), "Wavelengths below original_max_seq_len / this are kept.", only(kScaled)),
      KEY(model.rope.scaling.original_max_seq_len, integer({1, 1 << 24}), "Context length before stretching.", only(kScaled)),

      KEY(data.tokenizer, text(), "bytes (0-255, 256 ends a document), chars, a SentencePiece .model, or none (the data are tokens already)."),
      KEY(data.train, list_of(source(), {.low = 1}), "Sources of training data.", required()),
      make_key<RunSpec>("data.valid", [](auto& spec) -> auto& { return spec.data; }, valid_sources(), "Sources of validation data."),
      KEY(data.split, or_word("none", real({.high = 1, .open_low = true, .open_high = true})), "Instead of data.valid: this first part of train, by position, trains and the rest validates."),
      KEY(data.seq_len, integer({1, 1 << 24}), "Tokens of a sequence.", derived("model.max_seq_len")),
      KEY(data.packing, one_of<Packing>({{"stream", Packing::stream}, {"document", Packing::document}}), "stream cuts the tokens evenly; with document, attention stays inside a document."),
      KEY(data.seed, integer({}), "Of the order of samples."),

      KEY(train.steps, or_word("none", steps(1)), "Length of the run. Give train.steps or train.tokens."),
      KEY(train.tokens, or_word("none", tokens(1)), "Length of the run in tokens; the last step may go past it."),
      KEY(train.global_batch, batch(), "Sequences of an optimizer step over all ranks.", required()),
      KEY(train.micro_batch, integer({1, 1 << 20}), "Sequences of a rank in one pass."),
      KEY(train.seed, integer({}), "Of initial weights and dropout."),
      KEY(train.clip, or_word("none", real({.open_low = true})), "Largest global norm of the gradient."),
      KEY(train.ramp, or_empty("none", list_of(ramp_step(), {.low = 1})), "Smaller batches at the start, in the order of tokens."),
      KEY(train.eval_every, or_word("none", steps(1)), "Validate after every so many steps."),
      KEY(train.eval_sequences, or_word("all", integer({.low = 1}, Unit::sequences)), "How much of the validation data, always the same part."),

      KEY(optimizer.kind, word({"adamw"}), "AdamW: decoupled decay, none on norms and biases."),
      KEY(optimizer.lr, real({.open_low = true}), "Peak learning rate."),
      KEY(optimizer.betas, list_of(real({.high = 1, .open_high = true}), {2, 2}), "Decay of the first and second moment."),
      KEY(optimizer.eps, real({.high = 1, .open_low = true}), "Added to the root of the second moment."),
      KEY(optimizer.weight_decay, real({}), "Decay per step, times the learning rate."),

      KEY(schedule.kind, schedule_kind(), "The learning rate after warm-up. wsd: constant, then a decay."),
      KEY(schedule.warmup, steps(0), "Linear from zero to optimizer.lr."),
      KEY(schedule.final_lr, real({}), "Where the decay ends.", only(kDecays)),
      KEY(schedule.decay, steps(1), "wsd: length of the decay at the end; required there.", only(kWsd)),
      KEY(schedule.shape, decay_shape(), "wsd: form of the decay.", only(kWsd)),

      KEY(parallel.tp, integer({1, 1 << 14}), "Ranks that share each matrix (tensor parallel)."),
      KEY(parallel.sequence_parallel, on_off, "Norms and residuals are split over tp, too."),
      KEY(parallel.cp, integer({1, 1 << 14}), "Ranks that share each sequence (context parallel)."),
      KEY(parallel.ep, integer({1, 1 << 14}), "Ranks that share the experts (expert parallel)."),
      KEY(parallel.pp, integer({1, 1 << 14}), "Stages that share the layers (pipeline parallel)."),
      KEY(parallel.dp, or_word("auto", integer({1, 1 << 20})), "Replicas (data parallel); auto fills the world."),
      KEY(parallel.zero, integer({0, 3}), "ZeRO stage: 1 shards optimizer state over dp, 2 gradients as well, 3 weights as well."),
      KEY(parallel.zero_shard, or_word("all", integer({1, 1 << 20})), "Ranks of a shard group (HSDP)."),
      KEY(parallel.zero_keep, integer({0, 10'000}), "ZeRO-3: this many layers stay gathered."),
      KEY(parallel.comm, word({"auto", "shm", "tcp", "nccl"}), "Transport of the collectives. auto: between GPUs nccl, between CPUs shm within a host and tcp between hosts; tcp: also between ranks of one host."),
      KEY(parallel.order, list_of(word({"tp", "cp", "dp", "pp"}), {4, 4}), "Axes of the mesh, innermost first."),
      make_key<RunSpec>("parallel.pipeline.schedule", [](auto& spec) -> auto& { return spec.parallel.pipeline; }, pipeline_schedule(), "Order of forward and backward passes in the pipeline (docs/pipelines.md); custom: as it is written in a file."),
      KEY(parallel.pipeline.virtual_stages, integer({1, 1000}), "Chunks of layers a stage holds."),
      KEY(parallel.pipeline.split, or_empty("auto", list_of(integer({1, 100'000}), {.low = 1})),
          "Layers of each position of the pipeline, in the model's order; auto: alike in FLOPs."),
      KEY(parallel.pipeline.post_validation, on_off, "A stage updates without waiting for the world's gradient norm, and begins the next step; an update that should have been clipped is taken back. Costs a copy of the optimizer's state."),

      KEY(precision.compute, precision({"fp8"}), "Of activations and of the weights that blocks read."),
      KEY(precision.master, precision(), "Of the weights that the optimizer updates."),
      KEY(precision.gradients, precision(), "Of accumulated gradients."),
      KEY(precision.reduce, precision(), "Of gradients summed over ranks.", derived("precision.gradients")),
      KEY(precision.tf32, on_off, "fp32 matrix products on GPUs round their factors to TF32; CPUs compute them in fp32."),

      KEY(memory.recompute, recompute(), "What backward computes again: nothing, attention and activation, whole layers, or every k-th layer whole."),

      KEY(checkpoint.dir, file_or_none, "Where checkpoints are; none: log.dir/checkpoints."),
      KEY(checkpoint.every, or_word("none", steps(1)), "Save after every so many steps; none: at the end."),
      KEY(checkpoint.keep, integer({.low = 1}), "How many of the newest stay."),
      KEY(checkpoint.keep_every, or_word("none", steps(1)), "Checkpoints of these steps stay for good."),
      KEY(checkpoint.init_from, file_or_none, "A checkpoint whose weights a new run starts from."),
      KEY(checkpoint.asynchronous, on_off, "Write while training goes on."),
      KEY(checkpoint.fast_dir, file_or_none, "A fast local directory for frequent checkpoints."),
      KEY(checkpoint.fast_every, or_word("none", steps(1)), "Save there after every so many steps."),
      KEY(checkpoint.remote, file_or_none, "Object storage that checkpoints are copied to."),

      KEY(resilience.heartbeat, seconds(), "Between two signs of life of a rank."),
      KEY(resilience.dead_after, seconds(), "Without a sign of life, a rank is dead."),
      KEY(resilience.spares, integer({0, 1 << 20}), "Ranks that wait to replace a dead one."),

      KEY(log.dir, text(), "The run directory."),
      KEY(log.every, steps(1), "A line of metrics after every so many steps."),
      KEY(log.tensorboard, on_off, "Write TensorBoard event files."),
      KEY(log.trace, on_off, "Write a trace of the lanes."),

      KEY(device.kind, device_choice(), "auto takes a GPU where there is one."),
      KEY(device.cuda_graph, on_off, "Replay a step as one CUDA graph."),
      KEY(device.fallback, on_off, "Use plain kernels, far from the GPU's speed, where a GPU has no fast ones: attention in bf16 with a head width other than 64, 96 and 128."),
      KEY(device.heuristics, file_or_none, "File of cuBLASLt's fastest algorithm for every matrix product of the run; what it lacks is found by timing before the first step and written. Not used on CPUs."),
      KEY(device.costs, file_or_none, "File of measured block times."),
      KEY(device.threads, or_word("auto", integer({1, 1 << 12})), "Workers of the CPU's compute pool; auto: the cores this process may use."),
  };
}
// clang-format on
#undef KEY

}  // namespace

const std::vector<Key<RunSpec>>& spec_table() {
  static const auto table = make_table();
  return table;
}

const std::vector<Section>& spec_sections() {
  static const std::vector<Section> sections = {
      {"model", "The architecture and its sizes."},
      {"model.rope", "Rotary positions."},
      {"model.rope.scaling", "Rotary positions beyond the length a model was first trained on."},
      {"data", "What is learnt from, and how it is cut into sequences."},
      {"train", "How long, and how much at a time."},
      {"optimizer", "How a gradient becomes an update."},
      {"schedule", "The learning rate over the steps."},
      {"parallel", "How the work is divided over ranks."},
      {"parallel.pipeline", "How a pipeline of stages runs."},
      {"precision", "Number formats."},
      {"memory", "What is kept for backward, and what is computed again."},
      {"checkpoint", "What is saved, where and when."},
      {"resilience", "How faults are noticed and survived."},
      {"log", "What a run tells."},
      {"device", "What a rank computes on."},
  };
  return sections;
}

const std::vector<Section>& reserved_keys() {
  static const std::vector<Section> keys = {
      {"model.moe", "mixture of experts"},
      {"model.mla", "multi-head latent attention"},
      {"model.mtp", "multi-token prediction"},
  };
  return keys;
}

}  // namespace trainer
