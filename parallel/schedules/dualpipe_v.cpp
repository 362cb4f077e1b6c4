// DualPipeV (DeepSeek-V3's DualPipe cut in half): two chunks per stage in a V, a forward of one beside a backward of
// the other. A stage keeps at most 2 p + 1 chunks, and nothing but the V's two chunks of the weights. Here a stage
// computes one action at a time, so a pair stands one behind the other, the forward first.
#include <algorithm>

#include "parallel/schedules/schedules.h"
#include "parallel/schedules/stage_order.h"

namespace trainer {
namespace {

void pair(StageOrder& o, int forward, int backward) {
  o.forward(forward);
  o.backward(backward);
}

// Backwards of both chunks in turn; in the second half their weight halves are put off, to fill the drain.
void drain(StageOrder& o, int stage) {
  const int backwards = 2 * (stage + 1), whole = stage + 1;
  for (int i = 0; i < backwards; ++i) {
    const int chunk = 1 - i % 2;
    if (i < whole) o.backward(chunk);
    else o.input(chunk);
  }
}

}  // namespace

Orders dualpipe_v(const PipeShape& p, const Limits&) {
  const int n = std::max(p.microbatches, 2 * p.stages);  // as many as it takes to fill the pipeline
  return each_stage(p, [&](StageOrder& o, int stage) {
    const int beyond = p.stages - stage - 1;  // stages between here and the turn of the V
    for (int i = 0; i < 2 * beyond; ++i) o.forward(0);
    for (int i = 0; i <= stage; ++i) {
      o.forward(0);
      o.forward(1);
    }
    for (int i = 0; i < beyond; ++i) {
      o.input(1);
      o.weight();
      o.forward(1);
    }
    while (o.forwards(0) < n) {
      pair(o, 0, 1);
      pair(o, 1, 0);
    }
    for (int i = 0; i < beyond; ++i) {
      o.backward(1);
      pair(o, 1, 0);
    }
    drain(o, stage);
    for (int i = 0; i < beyond; ++i) {
      o.weight();
      o.input(0);
    }
  });
}

}  // namespace trainer
