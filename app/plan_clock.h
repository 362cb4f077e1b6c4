// A planned training step on the clock of a machine.
#pragma once
#include <string>

#include "app/planning.h"
#include "parallel/simulate.h"

namespace trainer {

struct ClockedStep {
  Timeline timeline;   // of one rank of each stage
  double seconds = 0;  // from step to step: less than the makespan where updates run ahead
  double exposed = 0;  // seconds that the step is longer than with communication that takes no time
  // Without communication, from a stage's first pass to its last: the share of the longest that stages idle on average.
  double bubble_rate = 0;
};
// Of the first step's batch.
ClockedStep clock_step(const PlannedWorld&, const Machine&);
// The step as the text of a trace (parallel/trace.h), and to a file. Throws Error(disk).
std::string clock_trace(const PlannedWorld&, const ClockedStep&);
void write_clock_trace(const std::string& path, const PlannedWorld&, const ClockedStep&);

}  // namespace trainer
