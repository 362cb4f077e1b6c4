#include "app/plan_clock.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>

#include "core/base/error.h"
#include "parallel/trace.h"

namespace trainer {
namespace {

double bubble_of(const Timeline& t) {
  const double busy = std::accumulate(t.busy.begin(), t.busy.end(), 0.0) / double(t.busy.size());
  return t.span > 0 ? std::max(0.0, 1 - busy / t.span) : 0;
}

}  // namespace

ClockedStep clock_step(const PlannedWorld& w, const Machine& machine) {
  const Planned& p = w.rank;
  const PlanKey key = usual_key(p.spec, p.mesh.dp);
  ClockedStep step;
  const World world = world_of_stages(p.spec, p.model, p.mesh, w.stages);
  MachineDurations durations(p.spec, p.model, w.stages[0], p.mesh, machine);
  step.timeline = clock_world(world, key, durations);
  durations.silence();
  const Timeline silent = clock_world(world, key, durations);
  const auto seconds = [&](const Timeline& t) { return key.kind == StepKind::train_ahead ? t.span : t.makespan; };
  step.seconds = seconds(step.timeline);
  step.exposed = step.seconds - seconds(silent);
  step.bubble_rate = bubble_of(silent);
  return step;
}

std::string clock_trace(const PlannedWorld& w, const ClockedStep& step) {
  const Planned& p = w.rank;
  const PlanKey key = usual_key(p.spec, p.mesh.dp);
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
