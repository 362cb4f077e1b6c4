// GPipe (Huang et al. 2019): all forwards, then all backwards. Keeps every micro-batch's activations.
#include "parallel/schedules/schedules.h"
#include "parallel/schedules/stage_order.h"

namespace trainer {

Orders gpipe(const PipeShape& p, const Limits&) {
  return each_stage(p, [&](StageOrder& o, int) {
    while (o.forwards() < p.microbatches) o.forward();
    while (o.backwards() < p.microbatches) o.backward();
  });
}

}  // namespace trainer
