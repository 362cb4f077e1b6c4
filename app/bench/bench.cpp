#include "app/bench/bench.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "app/bench/comm.h"
#include "app/bench/pipeline.h"
#include "core/base/error.h"

namespace trainer {

void print_rows(const std::vector<BenchRow>& rows, bool json) {
  if (json) {
    nlohmann::ordered_json out{{"rows", nlohmann::ordered_json::array()}};
    for (const BenchRow& r : rows) {
      nlohmann::ordered_json row{
          {"name", r.name}, {"value", r.value}, {"unit", r.unit}, {"roof", nullptr}, {"fraction", nullptr}};
      if (r.roof) {
        row["roof"] = *r.roof;
        row["fraction"] = r.value / *r.roof;
      }
      out["rows"].push_back(row);
    }
    fmt::print("{}\n", out.dump(1));
    return;
  }
  size_t width = 4;
  for (const BenchRow& r : rows) width = std::max(width, r.name.size());
  fmt::print("{:<{}}  {:>12} {:<9} {:>12} {:>9}\n", "what", width, "value", "unit", "roof", "of roof");
  for (const BenchRow& r : rows)
    fmt::print("{:<{}}  {:>12.2f} {:<9} {:>12} {:>9}\n", r.name, width, r.value, r.unit,
               r.roof ? fmt::format("{:.2f}", *r.roof) : "",
               r.roof ? fmt::format("{:.1f} %", 100 * r.value / *r.roof) : "");
}

void add_bench_commands(CLI::App& app, int& exit_code) {
  auto* bench = app.add_subcommand("bench", "measure, each figure beside the roof of the same run");
  bench->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, auto options, auto configure, auto measure) {
    auto* command = bench->add_subcommand(name, what);
    auto values = std::make_shared<decltype(options)>(options);
    auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "print one JSON object");
    configure(*command, *values);
    command->callback([values, json, measure, &exit_code] {
      print_rows(measure(*values), *json);
      exit_code = int(Exit::done);
    });
  };
  const auto roof = [](CLI::App& c, int64_t& size) {
    c.add_option("--roof-size", size, "largest side of the products that make the roof; 0: the device's");
  };
  const auto common = [roof](CLI::App& c, BenchOptions& o) {
    c.add_option("--dtype", o.dtype, "bf16 or fp32")->capture_default_str();
    c.add_option("--device", o.device, "auto, cpu or cuda")->capture_default_str();
    roof(c, o.roof_size);
  };
  add(
      "matmul", "dense products at training shapes", MatmulBenchOptions{},
      [common](CLI::App& c, MatmulBenchOptions& o) {
        common(c, o);
        c.add_option("--rows", o.rows, "tokens")->capture_default_str();
        c.add_option("--hidden", o.hidden)->capture_default_str();
        c.add_option("--qkv", o.qkv, "columns of queries, keys and values; 0: 3 * hidden")->capture_default_str();
        c.add_option("--ffn", o.ffn, "columns of the MLP; llama's gate and up: twice its width")->capture_default_str();
        c.add_option("--vocab", o.vocab)->capture_default_str();
      },
      bench_matmul);
  add(
      "attention", "attention with online softmax", AttentionBenchOptions{},
      [common](CLI::App& c, AttentionBenchOptions& o) {
        common(c, o);
        c.add_option("--batch", o.batch, "sequences; 0: several shapes")->capture_default_str();
        c.add_option("--seq-len", o.seq_len)->capture_default_str();
        c.add_option("--heads", o.heads)->capture_default_str();
        c.add_option("--kv-heads", o.kv_heads, "0: as many as heads")->capture_default_str();
        c.add_option("--head-dim", o.head_dim)->capture_default_str();
      },
      bench_attention);
  add(
      "block", "the parts of one transformer block: time, FLOPs, bytes", BlockBenchOptions{},
      [common](CLI::App& c, BlockBenchOptions& o) {
        common(c, o);
        c.add_option("--family", o.family, "gpt2 or llama")->capture_default_str();
        c.add_option("--attention", o.attention, "flash, or naive (on a CPU)")->capture_default_str();
        c.add_option("--trace", o.trace, "write a trace for Perfetto to this file");
        c.add_option("--batch", o.batch)->capture_default_str();
        c.add_option("--seq-len", o.seq_len)->capture_default_str();
        c.add_option("--hidden", o.hidden)->capture_default_str();
        c.add_option("--heads", o.heads)->capture_default_str();
        c.add_option("--kv-heads", o.kv_heads, "0: as many as heads")->capture_default_str();
        c.add_option("--ffn", o.ffn)->capture_default_str();
      },
      bench_block);
  add(
      "step", "whole training steps of a config, on random tokens", StepBenchOptions{},
      [roof](CLI::App& c, StepBenchOptions& o) {
        roof(c, o.roof_size);
        c.add_option("--config", o.config, "run spec")->required();
        c.add_option("--steps", o.steps, "steps to time, after one that warms up")->capture_default_str();
        c.add_option("overrides", o.overrides, "section.key=value");
      },
      bench_step);
  add(
      "pipeline", "steps of every schedule, beside what the clock says of the same plan", PipelineBenchOptions{},
      [](CLI::App& c, PipelineBenchOptions& o) {
        c.add_option("--stages", o.stages, "numbers of stages")->delimiter(',')->capture_default_str();
        c.add_option("--milliseconds", o.milliseconds, "a stage's forward takes, and each half of its backward")
            ->capture_default_str();
        c.add_option("--steps", o.steps, "steps to time, after one that warms up")->capture_default_str();
        auto* ahead = c.add_flag("--ahead", o.ahead, "with post-validation: from step to step, without a wait between");
        c.add_flag("--compute", o.compute, "a real model on two stages, in place of blocks that sleep")
            ->excludes(ahead);
      },
      bench_pipeline);
  auto* comm = bench->add_subcommand("comm", "collectives between local processes, beside the memory's bandwidth");
  auto o = std::make_shared<CommBenchOptions>();
  auto json = std::make_shared<bool>(false);
  comm->add_flag("--json", *json, "print one JSON object");
  comm->add_option("--ranks", o->ranks, "processes")->capture_default_str();
  comm->add_option("--max", o->max, "the largest tensor")->capture_default_str();
  comm->add_option("--against", o->against, "openmpi, gloo: compare in this run")->delimiter(',');
  comm->callback([o, json, &exit_code] {
    print_comm_figures(bench_comm(*o), *o, *json);
    exit_code = int(Exit::done);
  });
}

}  // namespace trainer
