#include "app/step_control.h"

#include <cmath>
#include <limits>

#include "app/learning_rate.h"

namespace trainer {

Control step_control(const RunSpec& spec, int64_t step, int64_t total) {
  const double t = double(step + 1);
  return {.step = step,
          .seed = uint64_t(spec.train.seed),
          .lr = float(learning_rate(spec.optimizer, spec.schedule, step, total)),
          .bias1 = float(1 - std::pow(spec.optimizer.betas[0], t)),
          .bias2 = float(1 - std::pow(spec.optimizer.betas[1], t)),
          .max_norm = spec.train.clip ? float(*spec.train.clip) : std::numeric_limits<float>::infinity(),
          .factor = 0,
          .skip = 0};
}

}  // namespace trainer
