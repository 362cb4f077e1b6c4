// What a step says about itself: a value, handed to whoever logs.
#pragma once
#include <cstdint>

namespace trainer {

struct StepReport {
  int64_t step = 0;
  double tokens = 0;     // unmasked, of this step, over the world
  double loss = 0;       // mean over them, in nats
  double grad_norm = 0;  // of the mean loss's gradient, before clipping; 0 for an evaluation
  bool finite = true;
  bool stop = false;       // a rank was asked to stop
  bool refused = false;    // it updated ahead, and should not have: this update and later ones are none
  uint64_t data_hash = 0;  // of what the world trained on: no layout, no order
  double seconds = 0;
};

}  // namespace trainer
