#include "app/step_clock.h"

namespace trainer {
namespace {

template <class T>
constexpr T ByPurpose<T>::*kPurposes[] = {&ByPurpose<T>::gather, &ByPurpose<T>::reduce,   &ByPurpose<T>::tp,
                                          &ByPurpose<T>::pipe,   &ByPurpose<T>::exchange, &ByPurpose<T>::outcome};

template <class T>
T ByPurpose<T>::*purpose_of(Axis axis, Lane lane) {
  switch (axis) {
    case Axis::tp:
    case Axis::kv: return &ByPurpose<T>::tp;
    case Axis::pp: return &ByPurpose<T>::pipe;
    case Axis::ep: return &ByPurpose<T>::exchange;
    case Axis::world: return &ByPurpose<T>::outcome;
    default: return lane == Lane::gather ? &ByPurpose<T>::gather : &ByPurpose<T>::reduce;
  }
}

// What the compute lane waits for when it waits for another; batches are no communication.
double CommSeconds::*awaited_on(Lane lane) {
  switch (lane) {
    case Lane::gather: return &CommSeconds::gather;
    case Lane::reduce: return &CommSeconds::reduce;
    case Lane::exchange: return &CommSeconds::exchange;
    case Lane::vote: return &CommSeconds::outcome;
    case Lane::send_act:
    case Lane::recv_act:
    case Lane::send_grad:
    case Lane::recv_grad: return &CommSeconds::pipe;
    default: return nullptr;
  }
}

double sum(const CommSeconds& c) {
  double all = 0;
  for (const auto purpose : kPurposes<double>) all += c.*purpose;
  return all;
}

}  // namespace

StepClock::Counts StepClock::count() const {
  Counts c;
  const LaneTimes compute = device_.times(Lane::compute).value_or(LaneTimes{});
  c.compute = compute.busy;
  for (int a = 0; a < kAxes; ++a) {
    const double seconds = traffic_.seconds(Axis(a), Lane::compute) + compute.accounts[size_t(a)];
    c.exposed.*purpose_of<double>(Axis(a), Lane::compute) += seconds;
    c.compute -= seconds;
    for (int l = 0; l < kLanes; ++l) c.moved.*purpose_of<int64_t>(Axis(a), Lane(l)) += traffic_.bytes(Axis(a), Lane(l));
  }
  for (int l = 0; l < kLanes; ++l) {
    const auto purpose = awaited_on(Lane(l));
    (purpose ? c.exposed.*purpose : c.data_wait) += compute.waited[size_t(l)];
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
  for (const auto purpose : kPurposes<int64_t>) record.comm.*purpose = now.moved.*purpose - before_.moved.*purpose;
  for (const auto purpose : kPurposes<double>)
    record.exposed.*purpose = now.exposed.*purpose - before_.exposed.*purpose;
  record.step_seconds = std::chrono::duration<double>(end - begin_).count();
  TimeSplit t;
  t.compute = now.compute - before_.compute;
  t.data_wait = now.data_wait - before_.data_wait;
  t.exposed_comm = sum(record.exposed);
  t.other = record.step_seconds - t.compute - t.data_wait - t.exposed_comm;
  if (device_.times(Lane::compute)) record.time = t;
  before_ = now;
  begin_ = end;
}

}  // namespace trainer
