#include "app/step_runner.h"

#include "app/step_control.h"

namespace trainer {

StepRunner::StepRunner(Engine& engine, const Planned& planned, const StepSizes& sizes, int64_t total, int calm_steps)
    : engine_(engine), planned_(planned), sizes_(sizes), total_(total), calm_steps_(calm_steps) {}

PlanKey StepRunner::key(int64_t step) const {
  return train_key(planned_.spec, sizes_.sequences(step), planned_.mesh.dp);
}
Control StepRunner::control(int64_t step) const { return step_control(planned_.spec, step, total_); }

StepReport StepRunner::run(int64_t step, bool alone) {
  done_ = step + 1;
  if (begun_ <= step) {
    if (calm_ < calm_steps_ || !updates_ahead(planned_.program)) return run_agreed(step);
    begin_ahead(step);
  }
  if (!alone) begin_ahead(step + 1);
  ran_ = ahead_of(key(step));
  const StepReport report = engine_.finish();
  return report.refused ? repeat(step) : report;
}

void StepRunner::begin_ahead(int64_t step) {
  begun_ = step + 1;
  engine_.begin(ahead_of(key(step)), control(step));
}

StepReport StepRunner::run_agreed(int64_t step) {
  const Control with = control(step);
  ran_ = key(step);
  const StepReport report = engine_.step(key(step), with);
  calm_ = report.finite && report.grad_norm <= double(with.max_norm) ? calm_ + 1 : 0;
  return report;
}

void StepRunner::settle() {
  if (begun()) engine_.finish();
  begun_ = done_;
}

// What was begun behind a refused step has not updated anything.
StepReport StepRunner::repeat(int64_t step) {
  settle();
  engine_.issue_plan(undo_key(key(0)), control(step));
  ++taken_back_;
  return run_agreed(step);
}

}  // namespace trainer
