// What a run is: the YAML as structs. Defaults stand beside the fields; `core/spec/table.cpp` is the one list of keys,
// units and legal values that reader, JSON Schema and docs/SPEC.md are made from. Key names are the field names.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

enum class Family : uint8_t { gpt2, llama };
enum class RopeScalingKind : uint8_t { none, llama3 };
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_seq_len = 8192;
};
struct RopeSpec {
  double theta = 10000;
  RopeScaling scaling;
};
struct ModelSpec {
  Family family = Family::llama;
  int64_t num_layers = 0, hidden_size = 0, num_heads = 0;
  int64_t num_kv_heads = 0;     // default: num_heads
  int64_t head_dim = 0;         // default: hidden_size / num_heads
  int64_t ffn_hidden_size = 0;  // default for gpt2: 4 * hidden_size
  int64_t vocab_size = 0, max_seq_len = 0;
  bool tie_embeddings = false;  // default for gpt2: true
  double norm_eps = 1e-5;
  bool qkv_bias = false;  // default for gpt2: true
  bool qk_norm = false;
  std::optional<int64_t> sliding_window;
  double dropout = 0;
  double init_std = 0.02;
  RopeSpec rope;
};

struct Source {
  std::string path;  // prefix of a .bin/.idx pair
  double weight = 1;
};
enum class Packing : uint8_t { stream, document };
struct DataSpec {
  std::string tokenizer = "none";  // bytes | chars | none | a file
  std::vector<Source> train, valid;
  std::optional<double> split;  // `valid: {split: 0.9}`: the first 0.9 of train by position trains, the rest validates
  int64_t seq_len = 0;          // default: model.max_seq_len
  Packing packing = Packing::stream;
  int64_t seed = 1;
};

struct BatchSize {  // sequences, or tokens where the text says so
  int64_t count = 0;
  bool in_tokens = false;
};
struct RampStep {
  int64_t tokens = 0;  // from this many tokens on
  BatchSize global_batch;
};
struct TrainSpec {
  std::optional<int64_t> steps, tokens;  // exactly one of them
  BatchSize global_batch;
  int64_t micro_batch = 1;  // sequences per rank and pass
  int64_t seed = 1;
  std::optional<double> clip = 1.0;              // global gradient norm; none
  std::vector<RampStep> ramp;                    // none: empty
  std::optional<int64_t> eval_every;             // steps; none
  std::optional<int64_t> eval_sequences = 1024;  // all: nullopt
};

struct OptimizerSpec {
  std::string kind = "adamw";
  double lr = 3e-4;
  std::vector<double> betas{0.9, 0.95};
  double eps = 1e-8, weight_decay = 0.1;
};
enum class ScheduleKind : uint8_t { constant, linear, cosine, wsd, inverse_sqrt };
enum class DecayShape : uint8_t { linear, cosine, one_minus_sqrt };  // `1-sqrt`
struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::constant;
  int64_t warmup = 0;  // steps
  double final_lr = 0;
  int64_t decay = 0;  // wsd: the last so many steps
  DecayShape shape = DecayShape::linear;
};

enum class PipelineKind : uint8_t {
  gpipe,
  one_f_one_b,
  interleaved,
  zb_h1,
  zb_h2,
  zb_v,
  zb_auto,
  dualpipe_v,
  custom
};  // `1f1b`
// Virtual stages that a schedule is made for; 0: any number.
constexpr int chunks_of(PipelineKind k) {
  if (k == PipelineKind::interleaved || k == PipelineKind::custom) return 0;
  return k == PipelineKind::zb_v || k == PipelineKind::dualpipe_v ? 2 : 1;
}
struct PipelineSpec {
  PipelineKind schedule = PipelineKind::one_f_one_b;
  std::string file;  // custom: where the order is written
  int64_t virtual_stages = 1;
  std::vector<int64_t> split;  // layers of each position of the pipeline; empty: auto
  bool post_validation = false;
};
struct ParallelSpec {
  int64_t tp = 1, cp = 1, ep = 1, pp = 1;
  std::optional<int64_t> dp;  // auto: fills the world
  bool sequence_parallel = false;
  int64_t zero = 0;                   // 0 | 1 | 2 | 3
  std::optional<int64_t> zero_shard;  // all
  int64_t zero_keep = 0;
  std::string comm = "auto";
  std::vector<std::string> order{"tp", "cp", "dp", "pp"};
  PipelineSpec pipeline;
};

enum class Precision : uint8_t { fp32, bf16 };
struct PrecisionSpec {
  Precision compute = Precision::bf16, master = Precision::fp32, gradients = Precision::fp32, reduce = Precision::fp32;
  bool tf32 = false;
};

enum class RecomputeKind : uint8_t { none, selective, full, every };
struct RecomputeSpec {
  RecomputeKind kind = RecomputeKind::none;
  int64_t every = 1;  // `{every: k}`: layers 0, k, 2k, ... are recomputed in full, the others not at all
};
struct MemorySpec {
  RecomputeSpec recompute;
};

struct CheckpointSpec {
  std::optional<std::string> dir;  // none: log.dir/checkpoints
  std::optional<int64_t> every;    // steps; none: only at the end
  int64_t keep = 3;
  std::optional<int64_t> keep_every;  // steps
  std::optional<std::string> init_from;
  bool asynchronous = false;
  std::optional<std::string> fast_dir;
  std::optional<int64_t> fast_every;
  std::optional<std::string> remote;
};
struct ResilienceSpec {
  double heartbeat = 0.2, dead_after = 5;  // seconds
  int64_t spares = 0;
};
struct LogSpec {
  std::string dir = "runs/run";
  int64_t every = 1;  // steps
  bool tensorboard = true, trace = false;
};
enum class DeviceChoice : uint8_t { automatic, cpu, cuda };  // `auto`
struct DeviceSpec {
  DeviceChoice kind = DeviceChoice::automatic;
  bool cuda_graph = false, fallback = false;
  std::optional<std::string> heuristics, costs;
  std::optional<int64_t> threads;  // CPU: workers of the compute pool; default: the cores this process may use
};

struct RunSpec {
  ModelSpec model;
  DataSpec data;
  TrainSpec train;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  ParallelSpec parallel;
  PrecisionSpec precision;
  MemorySpec memory;
  CheckpointSpec checkpoint;
  ResilienceSpec resilience;
  LogSpec log;
  DeviceSpec device;
};

// Sequences of one optimizer step once `tokens` have been trained on; the ramp's steps apply.
int64_t sequences_per_step(const RunSpec&, int64_t tokens_so_far);

}  // namespace trainer
