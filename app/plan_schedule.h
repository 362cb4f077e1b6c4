// `trainer plan --schedule ...`: a pipeline schedule by itself, on the clock, without a model.
#pragma once
#include <string>
#include <vector>

#include "core/spec/run_spec.h"
#include "parallel/schedules/clock.h"
#include "parallel/schedules/text.h"

namespace CLI {
class App;
}

namespace trainer {

struct ScheduleOptions {
  std::string schedule;                          // a name of the spec, or custom:FILE
  int stages = 1, microbatches = 1, chunks = 0;  // chunks 0: as many as the schedule needs
  std::vector<double> times{1, 1, 1, 0}, sizes{1, 1};
  double limit = 1;
  std::string svg;
  bool ascii = false;
  int width = 160;
};
void add_schedule_options(CLI::App&, ScheduleOptions&);

// A schedule and what the clock says of it.
struct ClockedSchedule {
  Schedule schedule;
  PipeShape shape;
  Orders orders;
  ScheduleTimes times;
};
// Throws Error(spec) where the schedule cannot run that shape, or (usage) where the options are not numbers it can use.
ClockedSchedule clock_schedule(const ScheduleOptions&);
// The pipeline of a spec, with f = b = w = 1 and comm = 0.
ClockedSchedule clock_schedule(const RunSpec&, int microbatches);

// The picture if one is asked for; else a table or one JSON object.
void print_schedule(const ClockedSchedule&, const ScheduleOptions&, bool json);

}  // namespace trainer
