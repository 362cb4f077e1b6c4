// A step on a clock, and below it the same step in a run, as one picture.
#pragma once
#include <iosfwd>
#include <string>

namespace trainer {

// Texts of traces (parallel/trace.h).
struct StepTraces {
  std::string planned, machine;  // the plan's, on the clock of that machine
  std::string ran, path_of_run;  // a run's, and where it was read
};
// Of the ranks that the clock has: where there are replicas, the first of each stage. A panel is as wide as its own
// makespan. Throws Error(usage) where the run's trace is none, or has other tracks or passes than the plan.
void draw_step(std::ostream&, const StepTraces&);

}  // namespace trainer
