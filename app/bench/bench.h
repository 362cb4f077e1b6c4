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

struct BlockBenchOptions {
  std::string family = "gpt2";      // gpt2 | llama
  std::string attention = "flash";  // flash | naive
  std::string dtype = "bf16";       // bf16 | fp32
  std::string trace;                // a file for Perfetto; empty: none
  int64_t batch = 4, seq_len = 1024, hidden = 768, heads = 12, ffn = 3072;
};
struct StepBenchOptions {
  std::string config;
  std::vector<std::string> overrides;
  int steps = 5;
};
std::vector<BenchRow> bench_matmul(const std::string& dtype);
std::vector<BenchRow> bench_attention(const std::string& dtype);
std::vector<BenchRow> bench_block(const BlockBenchOptions&);
std::vector<BenchRow> bench_step(const StepBenchOptions&);

}  // namespace trainer
