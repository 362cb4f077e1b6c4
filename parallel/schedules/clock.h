// Orders on a clock, without a model. A stage runs its actions in their order, one at a time; a forward needs the
// previous position's, a backward_input the next position's and its own forward, a backward_weight its own
// backward_input. What comes from another stage is `comm` late, and costs neither end time. This is the model that the
// zero-bubble paper (Qi et al. 2024, arXiv 2401.10241) computes its bubble rates with.
#pragma once
#include "core/plan/schedule.h"

namespace trainer {

struct ActionTime {
  double start = 0, end = 0;
};
struct StageTimes {
  std::vector<ActionTime> actions;  // those of its order that ran
  double begin = 0, end = 0;        // of its first action, of its last
  double busy = 0;
  // Most that it holds: Limits::kept from each forward to its backward_input, Limits::owed from there to its
  // backward_weight. A whole backward holds `kept` until it ends.
  double peak = 0;
  double in_flight = 0;  // most micro-batches between forward and backward_input, in parts of a stage
};
struct ScheduleTimes {
  std::vector<StageTimes> stages;
  double makespan = 0;  // of all stages together; the first action starts at 0
  double cost = 0;      // largest `end - begin` of a stage: what a step costs where no stage waits for all at its end
  double bubble_rate = 0;  // 1 - m (f + b + w) / cost
  std::string stuck;       // "", or where each stage stands that cannot go on
};

// REQUIRES orders that find_problem accepts, but for deadlocks: those are `stuck`.
ScheduleTimes clock_orders(const Orders&, const PipeShape&, Placement, const Limits&);

}  // namespace trainer
