// The learning rate as a pure function of the step.
#pragma once
#include "core/spec/run_spec.h"

namespace trainer {

// Of step `step` (the first is 0) of `total`. Warm-up is linear: lr * (step + 1) / warmup. After it, with p the
// fraction of the remaining steps that is over:
//   constant; linear and cosine (Loshchilov, Hutter 2017) from lr to final_lr at the last step; inverse_sqrt: lr
//   sqrt(warmup / step) (Vaswani et al. 2017), not below final_lr; wsd (Hu et al. 2024): lr, then over the last `decay`
//   steps to final_lr, linear, cosine, or 1 - sqrt(p) (Haegele et al. 2024).
double learning_rate(const OptimizerSpec&, const ScheduleSpec&, int64_t step, int64_t total);

}  // namespace trainer
