// Pipeline schedules as data: a pure function from a shape to the order of one stage's actions.
#pragma once
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/plan.h"

namespace trainer {

struct PipeShape {
  int stages = 1, chunks = 1, microbatches = 1;
};
struct Limits {               // for schedules that plan by cost and memory
  double activations = 0, f = 1, b = 1, w = 1, comm = 0;
};
struct Action {               // a backward_input directly followed by its backward_weight is a plain backward
  Verb verb;
  int16_t microbatch, chunk;
};
struct Schedule {
  std::string_view name;
  std::vector<Action> (*order)(const PipeShape&, const Limits&, int stage);
  int (*place)(const PipeShape&, int stage, int chunk);   // position in the model: looped or V
};

}  // namespace trainer
