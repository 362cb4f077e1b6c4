// `trainer bench`: figures, each beside the roof that the same run found.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trainer {

struct BenchRow {
  std::string name;
  double value = 0;
  std::string unit;
  std::optional<double> roof;  // in the same unit; none where no roof is known
};

// A table for people, or {"rows": [{name, value, unit, roof, fraction}]}.
void print_rows(const std::vector<BenchRow>&, bool json);

// Registers `bench matmul | attention | block | step`; a callback sets `exit_code`.
void add_bench_commands(CLI::App&, int& exit_code);

// What all of them are asked. dtype: bf16 | fp32; device: auto | cpu | cuda; roof_size: see roof.h, 0: the device's.
struct BenchOptions {
  std::string dtype = "bf16", device = "auto";
  int64_t roof_size = 0;
};
// The products of a layer and of the head's chunk; qkv 0: 3 * hidden. GPT-2 124M at B = 4, T = 1024.
struct MatmulBenchOptions : BenchOptions {
  int64_t rows = 4096, hidden = 768, qkv = 0, ffn = 3072, vocab = 50304;
};
// batch 0: several shapes.
struct AttentionBenchOptions : BenchOptions {
  int64_t batch = 0, seq_len = 1024, heads = 12, kv_heads = 0, head_dim = 64;
};
struct BlockBenchOptions : BenchOptions {
  std::string family = "gpt2";      // gpt2 | llama
  std::string attention = "flash";  // flash | naive
  std::string trace;                // a file for Perfetto; empty: none
  int64_t batch = 4, seq_len = 1024, hidden = 768, heads = 12, kv_heads = 0, ffn = 3072;
};
struct StepBenchOptions {
  std::string config;
  std::vector<std::string> overrides;
  int steps = 5;
  int64_t roof_size = 0;
};
std::vector<BenchRow> bench_matmul(const MatmulBenchOptions&);
std::vector<BenchRow> bench_attention(const AttentionBenchOptions&);
std::vector<BenchRow> bench_block(const BlockBenchOptions&);
std::vector<BenchRow> bench_step(const StepBenchOptions&);

}  // namespace trainer
