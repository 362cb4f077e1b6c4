// How many sequences each step takes while the batch grows: the one place that turns step numbers into sequence
// numbers.
#pragma once
#include <cstdint>
#include <vector>

#include "core/spec/run_spec.h"

namespace trainer {

class StepSizes {
 public:
  explicit StepSizes(const RunSpec&);
  int64_t sequences(int64_t step) const;         // of the step, over the world
  int64_t sequences_before(int64_t step) const;  // of all earlier steps: the global number of the step's first sequence
  std::vector<int64_t> changes() const;          // the first step of each size

 private:
  struct Phase {
    int64_t first_step, first_sequence, sequences;
  };
  const Phase& phase(int64_t step) const;
  std::vector<Phase> phases_;  // one per change of the batch; ascending
};

// Of an evaluation's pass: as many as fill the pipeline.
inline int evaluation_microbatches(const RunSpec& spec) { return int(spec.parallel.pp); }

}  // namespace trainer
