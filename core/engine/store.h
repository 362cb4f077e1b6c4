// Where snapshots go.
#pragma once
#include "core/plan/plan.h"

namespace trainer {

class Store {
 public:
  virtual ~Store() = default;
  virtual void put(Stream&, int64_t step, const StateSlot&,
                   Tensor) = 0;  // ordered on the lane; replicas share the writing
  virtual void seal(int64_t step) = 0;
};

}  // namespace trainer
