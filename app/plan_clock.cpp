#include "app/plan_clock.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/base/error.h"
#include "parallel/trace.h"

namespace trainer {
namespace {

double bubble_of(const std::vector<Program>& stages, const PlanKey& key, const Timeline& t) {
  double longest = 0, busy = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const Plan& plan = *find_plan(stages[s], key);
    double first = std::numeric_limits<double>::infinity(), last = 0;
    for (size_t id = 0; id < plan.code.size(); ++id) {
      if (plan.code[id].block < 0 || plan.code[id].lane != Lane::compute) continue;
      first = std::min(first, t.spans[s][id].begin);
      last = std::max(last, t.spans[s][id].end);
    }
    longest = std::max(longest, last - first);
    busy += t.busy[s] / double(stages.size());
  }
  return longest > 0 ? std::max(0.0, 1 - busy / longest) : 0;
}

}  // namespace

ClockedStep clock_step(const PlannedWorld& w, const Machine& machine) {
  const Planned& p = w.rank;
  const PlanKey key = plan_keys(p.spec, p.mesh.dp).front();
  ClockedStep step;
  const World world = world_of_stages(p.spec, p.model, p.mesh, w.stages);
  MachineDurations durations(p.spec, p.model, w.stages[0], p.mesh, machine);
  step.timeline = clock_world(world, key, durations);
  durations.silence();
  const Timeline silent = clock_world(world, key, durations);
  step.exposed = step.timeline.makespan - silent.makespan;
  step.bubble_rate = bubble_of(w.stages, key, silent);
  return step;
}

std::string clock_trace(const PlannedWorld& w, const ClockedStep& step) {
  const Planned& p = w.rank;
  const PlanKey key = plan_keys(p.spec, p.mesh.dp).front();
  std::vector<std::string> events;
  for (size_t s = 0; s < w.stages.size(); ++s)
    events.push_back(trace_events(p.mesh.at_replica(0).at_slice(0).at_stage(int(s)), *find_plan(w.stages[s], key),
                                  step.timeline.spans[s]));
  std::ostringstream text;
  write_trace(text, events);
  return text.str();
}

void write_clock_trace(const std::string& path, const PlannedWorld& w, const ClockedStep& step) {
  std::ofstream out(path);
  out << clock_trace(w, step);
  check(bool(out.flush()), Exit::disk, "{}: cannot write the trace", path);
}

}  // namespace trainer
