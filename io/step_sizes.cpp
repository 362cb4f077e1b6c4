#include "io/step_sizes.h"

#include <algorithm>

namespace trainer {

StepSizes::StepSizes(const RunSpec& spec) : phases_{{0, 0, sequences_per_step(spec, 0)}} {
  for (const RampStep& change : spec.train.ramp) {
    const Phase& last = phases_.back();
    const int64_t tokens_per_step = last.sequences * spec.data.seq_len;
    const int64_t tokens_left = change.tokens - last.first_sequence * spec.data.seq_len;
    if (tokens_left <= 0) continue;  // already in force
    const int64_t steps = (tokens_left + tokens_per_step - 1) / tokens_per_step;
    const int64_t sequences = last.first_sequence + steps * last.sequences;
    phases_.push_back({last.first_step + steps, sequences, sequences_per_step(spec, sequences * spec.data.seq_len)});
  }
}

const StepSizes::Phase& StepSizes::phase(int64_t step) const {
  const auto behind = std::upper_bound(phases_.begin(), phases_.end(), step,
                                       [](int64_t s, const Phase& p) { return s < p.first_step; });
  return behind[-1];
}

int64_t StepSizes::sequences(int64_t step) const { return phase(step).sequences; }

int64_t StepSizes::sequences_before(int64_t step) const {
  const Phase& p = phase(step);
  return p.first_sequence + (step - p.first_step) * p.sequences;
}

std::vector<int64_t> StepSizes::changes() const {
  std::vector<int64_t> steps;
  for (const Phase& p : phases_) steps.push_back(p.first_step);
  return steps;
}

}  // namespace trainer
