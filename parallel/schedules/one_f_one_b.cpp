// 1F1B (PipeDream-flush; Narayanan et al. 2021): stage s of p keeps at most p - s micro-batches. On one stage: gradient
// accumulation.
#include <algorithm>

#include "parallel/schedules/schedules.h"
#include "parallel/schedules/stage_order.h"

namespace trainer {

Orders one_f_one_b(const PipeShape& p, const Limits&) {
  return each_stage(p, [&](StageOrder& o, int stage) {
    const int warmup = std::min(p.stages - stage - 1, p.microbatches);
    while (o.forwards() < warmup) o.forward();
    while (o.backwards() < p.microbatches) {
      if (o.forwards() < p.microbatches) o.forward();
      o.backward();
    }
  });
}

}  // namespace trainer
