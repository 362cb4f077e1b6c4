// The steps of a run, one after the other: with post-validation a step is begun before the one before it is known to
// be sound.
#pragma once
#include <optional>

#include "app/planning.h"
#include "core/engine/engine.h"
#include "io/step_sizes.h"

namespace trainer {

// Steps in a row that clipped nothing, before updates run ahead: a refused one costs two steps and itself again.
inline constexpr int kCalmSteps = 8;

class StepRunner {
 public:
  // All must outlive it.
  StepRunner(Engine&, const Planned&, const StepSizes&, int64_t total, int calm_steps = kCalmSteps);

  // Runs step number `step`, the first is 0: they are asked for in order. `alone`: nothing may run behind it, for who
  // asks wants the state as it leaves it. An update that should not have been is taken back and done again, so the
  // report and the state are those of a run without post-validation, to the bit.
  StepReport run(int64_t step, bool alone);

  // Whether the step after the last one that was run is begun already: it must be run before anything else.
  bool begun() const { return begun_ > done_; }
  // Waits for it, for who gives up.
  void settle();
  // The plan that the newest report is of.
  const std::optional<PlanKey>& ran() const { return ran_; }
  // Updates that were taken back.
  int64_t taken_back() const { return taken_back_; }

  PlanKey key(int64_t step) const;
  Control control(int64_t step) const;

 private:
  void begin_ahead(int64_t step);
  StepReport run_agreed(int64_t step);
  StepReport repeat(int64_t step);

  Engine& engine_;
  const Planned& planned_;
  const StepSizes& sizes_;
  const int64_t total_;
  const int calm_steps_;
  int64_t begun_ = 0, done_ = 0;  // steps before these are
  int calm_ = 0;                  // steps in a row whose gradient was not clipped
  int64_t taken_back_ = 0;
  std::optional<PlanKey> ran_;
};

}  // namespace trainer
