// 1F1B (Narayanan et al. 2019): stage s of p keeps at most p - s micro-batches. On one stage: gradient accumulation.
#include <algorithm>

#include "parallel/schedules/schedules.h"

namespace trainer {

std::vector<Action> one_f_one_b(const PipeShape& p, const Limits&, int stage) {
  require_chunks(p, 1, "1f1b");
  const int warmup = std::min(p.stages - stage - 1, p.microbatches);
  std::vector<Action> a;
  int f = 0, b = 0;
  while (f < warmup) a.push_back(forward_of(f++));
  while (b < p.microbatches) {
    if (f < p.microbatches) a.push_back(forward_of(f++));
    push_backward(a, b++);
  }
  return a;
}

}  // namespace trainer
