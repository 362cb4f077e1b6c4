// ZB-H1 (Qi et al. 2024): 1F1B whose stage s may owe s weight gradients; they fill the drain.
#include <algorithm>

#include "parallel/schedules/schedules.h"

namespace trainer {

std::vector<Action> zb_h1(const PipeShape& p, const Limits&, int stage) {
  require_chunks(p, 1, "zb_h1");
  const int warmup = std::min(p.stages - stage - 1, p.microbatches);
  std::vector<Action> a;
  int f = 0, b = 0, w = 0;
  while (f < warmup) a.push_back(forward_of(f++));
  while (b < p.microbatches) {
    const bool steady = f < p.microbatches;
    if (steady) a.push_back(forward_of(f++));
    a.push_back(input_of(b++));
    if (!steady || b - w > stage) a.push_back(weight_of(w++));
  }
  while (w < p.microbatches) a.push_back(weight_of(w++));
  return a;
}

}  // namespace trainer
