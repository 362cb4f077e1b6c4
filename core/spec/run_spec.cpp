#include "core/spec/run_spec.h"

namespace trainer {

int64_t sequences_per_step(const RunSpec& spec, int64_t tokens_so_far) {
  BatchSize batch = spec.train.global_batch;
  for (const RampStep& step : spec.train.ramp)
    if (step.tokens <= tokens_so_far) batch = step.global_batch;
  return batch.in_tokens ? batch.count / spec.data.seq_len : batch.count;
}

}  // namespace trainer
