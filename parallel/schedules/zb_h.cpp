// ZB-H1 and ZB-H2 (Qi et al. 2024, "Zero bubble pipeline parallelism"): 1F1B with backward in halves. Weight gradients
// are owed, and fill the drain. With depth 1 a stage keeps no more than under 1F1B; with depth 2 the warm-up is twice
// as long, so that no stage waits between its first action and its last.
#include <algorithm>

#include "parallel/schedules/schedules.h"
#include "parallel/schedules/stage_order.h"

namespace trainer {
namespace {

Orders zb_h(const PipeShape& p, int depth) {
  return each_stage(p, [&](StageOrder& o, int stage) {
    const int warmup = std::min(depth * (p.stages - stage - 1), p.microbatches);
    while (o.forwards() < warmup) o.forward();
    while (o.backwards() < p.microbatches) {
      const bool steady = o.forwards() < p.microbatches;
      if (steady) o.forward();
      o.input();
      if (!steady || o.owed() > depth * stage) o.weight();
    }
  });
}

}  // namespace

Orders zb_h1(const PipeShape& p, const Limits&) { return zb_h(p, 1); }
Orders zb_h2(const PipeShape& p, const Limits&) { return zb_h(p, 2); }

}  // namespace trainer
