// Whether orders are a schedule at all.
#pragma once
#include <optional>

#include "core/plan/schedule.h"

namespace trainer {

struct OrderProblem {
  int stage = 0;
  int action = 0;  // its place in the stage's order; beyond the last: something is missing, or all stages wait
  std::string what;
};

// The first of these that does not hold: every micro-batch of every chunk has its forward before its backward, and the
// halves of that in their order, each once; what one stage sends to another is needed there in the order in which it
// was sent, activations and gradients apart; and no stage waits for ever.
std::optional<OrderProblem> find_problem(const Orders&, const PipeShape&, Placement);

}  // namespace trainer
