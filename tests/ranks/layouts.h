// A small model in any layout, on ranks that are threads: what a cell of the parity grid is, and what running it gives.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/engine/step_report.h"
#include "core/spec/run_spec.h"

namespace trainer::test {

struct Layout {
  Family family = Family::llama;
  int tp = 1, dp = 1, zero = 0, zero_shard = 0, accumulation = 1;  // accumulation: micro-batches of a replica's step
  int pp = 1, chunks = 1, layers = 2;
  PipelineKind schedule = PipelineKind::one_f_one_b;
  bool sequence_parallel = false, tied = true;
  RecomputeKind recompute = RecomputeKind::none;
  Precision compute = Precision::fp32, gradients = Precision::fp32, reduce = Precision::fp32;
  int kv_heads = 2, vocab = 97, ffn = 70, head_dim = 8;
  float dropout = 0;
  DeviceChoice device = DeviceChoice::cpu;
  std::string heuristics = {};  // a file, of GPUs; empty: none
  bool graph = false;
  bool ahead = false;  // every update runs ahead
  double clip = 1;
  int ranks() const { return tp * pp * dp; }
  std::string name() const;
};

RunSpec spec_of(const Layout&);

// Everything a layout may not change.
struct Outcomes {
  std::vector<StepReport> steps;
  std::map<std::string, std::vector<float>> weights;  // logical tensors, put together from all ranks
  int64_t taken_back = 0;                             // updates that ran ahead
};
inline constexpr int kSteps = 5;

// Runs kSteps steps on layout.ranks() threads. Requires that all ranks report alike, bit for bit, and that elements
// which several ranks hold are the same bits on all of them, and that what was moved is what the plan counts.
Outcomes run(const Layout&);

}  // namespace trainer::test
