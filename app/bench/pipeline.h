// Pipelines on the clock and in a run.
#pragma once
#include "app/bench/bench.h"

namespace trainer {

struct PipelineBenchOptions {
  std::vector<int> stages{2, 4, 8};
  double milliseconds = 12;  // of a stage's forward, and of each half of its backward
  int steps = 3;             // timed, after one that warms up
  bool ahead = false;  // a step is begun before the one before it is agreed on (post-validation); of blocks that sleep
  bool compute = false;  // a real model on two stages, its blocks timed in turn with it; else blocks that sleep
};
// A row per schedule and number of stages: the measured step, beside the one that the clock says of the same plan.
std::vector<BenchRow> bench_pipeline(const PipelineBenchOptions&);

}  // namespace trainer
