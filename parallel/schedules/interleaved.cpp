// Interleaved 1F1B (Narayanan et al. 2021), in Megatron's order: chunks in turn, as many micro-batches at a time as
// there are stages. Where the last group is smaller, the order is that of a full one without those that are missing.
#include <algorithm>

#include "parallel/schedules/schedules.h"
#include "parallel/schedules/stage_order.h"

namespace trainer {

Orders interleaved(const PipeShape& p, const Limits&) {
  const int groups = (p.microbatches + p.stages - 1) / p.stages;
  const int all = groups * p.positions();
  const auto chunk = [&](int k) { return k / p.stages % p.chunks; };
  return each_stage(p, [&](StageOrder& o, int stage) {
    const int warmup = std::min(all, (p.stages - stage - 1) * 2 + (p.chunks - 1) * p.stages);
    int f = 0;
    while (f < warmup) o.forward(chunk(f++));
    for (int b = 0; b < all; ++b) {
      if (f < all) o.forward(chunk(f++));
      o.backward(p.chunks - 1 - chunk(b));
    }
  });
}

}  // namespace trainer
