#include "app/step_clock.h"

namespace trainer {
namespace {

// What a collective of a group on a lane is for. The outcome's few bytes (world) are for nothing of these.
int64_t CommBytes::*purpose_of(Axis axis, Lane lane) {
  switch (axis) {
    case Axis::tp:
    case Axis::kv: return &CommBytes::tp;
    case Axis::pp: return &CommBytes::pipe;
    case Axis::ep: return &CommBytes::exchange;
    case Axis::world: return nullptr;
    default: return lane == Lane::gather ? &CommBytes::gather : &CommBytes::reduce;
  }
}

}  // namespace

StepClock::Counts StepClock::count() const {
  Counts c{device_.times(Lane::compute), 0, {}};
  for (int a = 0; a < kAxes; ++a) {
    c.in_collectives += traffic_.seconds(Axis(a), Lane::compute);
    for (int l = 0; l < kLanes; ++l)
      if (const auto purpose = purpose_of(Axis(a), Lane(l))) c.moved.*purpose += traffic_.bytes(Axis(a), Lane(l));
  }
  return c;
}

void StepClock::restart() {
  device_.drain();
  before_ = count();
  begin_ = std::chrono::steady_clock::now();
}

void StepClock::split(StepRecord& record) {
  const auto end = std::chrono::steady_clock::now();
  const Counts now = count();
  TimeSplit& t = record.time;
  record.step_seconds = std::chrono::duration<double>(end - begin_).count();
  t.exposed_comm = now.in_collectives - before_.in_collectives;
  t.compute = now.compute.busy - before_.compute.busy - t.exposed_comm;
  for (int l = 0; l < kLanes; ++l)
    (Lane(l) == Lane::load ? t.data_wait : t.exposed_comm) +=
        now.compute.waited[size_t(l)] - before_.compute.waited[size_t(l)];
  t.other = record.step_seconds - t.compute - t.data_wait - t.exposed_comm;
  for (const auto purpose :
       {&CommBytes::gather, &CommBytes::reduce, &CommBytes::tp, &CommBytes::pipe, &CommBytes::exchange})
    record.comm.*purpose = now.moved.*purpose - before_.moved.*purpose;
  before_ = now;
  begin_ = end;
}

}  // namespace trainer
