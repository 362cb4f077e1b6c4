// What `begin` writes before a step, from the spec.
#pragma once
#include "core/ops/control.h"
#include "core/spec/run_spec.h"

namespace trainer {

// Of step `step` (the first is 0) of `total`. Without train.clip, max_norm is infinite.
Control step_control(const RunSpec&, int64_t step, int64_t total);

}  // namespace trainer
