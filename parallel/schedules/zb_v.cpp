// ZB-V (Qi et al. 2024, "Zero bubble pipeline parallelism" and "Pipeline parallelism with controllable memory"): two
// chunks per stage in a V, so that the stage that begins a micro-batch also ends it. Written out for equal times of
// forward and both halves of backward: then no stage waits between its first action and its last, and each keeps at
// most 2 p chunks, as much as the first stage of 1F1B.
#include <algorithm>

#include "parallel/schedules/schedules.h"
#include "parallel/schedules/stage_order.h"

namespace trainer {
namespace {

void backward_in_halves(StageOrder& o, int chunk) {
  o.input(chunk);
  o.weight();
}

}  // namespace

Orders zb_v(const PipeShape& p, const Limits&) {
  const int n = std::max(p.microbatches, 2 * p.stages - 1);  // as many as it takes to fill the pipeline
  return each_stage(p, [&](StageOrder& o, int stage) {
    const int below = p.stages - stage;  // stages from here to the turn of the V
    for (int i = 0; i < 2 * below - 1; ++i) o.forward(0);
    for (int i = 0; i < stage; ++i) {
      o.forward(1);
      o.forward(0);
    }
    for (int i = 0; i < below; ++i) {
      o.forward(1);
      backward_in_halves(o, 1);
    }
    while (o.forwards(1) < n) {
      if (o.forwards(0) < n) o.forward(0);
      backward_in_halves(o, 0);
      o.forward(1);
      backward_in_halves(o, 1);
    }
    for (int i = 0; i < stage; ++i) {
      o.input(0);
      o.input(1);
    }
    for (int i = 0; i < below; ++i) {
      o.input(0);
      o.weight();
    }
  });
}

}  // namespace trainer
