// GPipe (Huang et al. 2019): all forwards, then all backwards. Keeps every micro-batch's activations.
#include "parallel/schedules/schedules.h"

namespace trainer {

std::vector<Action> gpipe(const PipeShape& p, const Limits&, int) {
  require_chunks(p, 1, "gpipe");
  std::vector<Action> a;
  for (int m = 0; m < p.microbatches; ++m) a.push_back(forward_of(m));
  for (int m = 0; m < p.microbatches; ++m) push_backward(a, m);
  return a;
}

}  // namespace trainer
