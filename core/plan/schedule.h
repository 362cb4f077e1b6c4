// Pipeline schedules as data: a pure function from a shape, and what it plans by, to the order of every stage's
// actions.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/plan.h"

namespace trainer {

struct PipeShape {
  int stages = 1, chunks = 1, microbatches = 1;
  int positions() const { return stages * chunks; }
};

// What a schedule may plan by. Times and sizes are those of one micro-batch on a whole stage: a chunk has its even part
// of each. The units are the caller's.
struct Limits {
  double f = 1, b = 1, w = 1, comm = 0;  // forward, the halves of backward, the way from one stage to another
  double kept = 1;                       // held from a forward to its backward_input (M_B of the zero-bubble papers)
  double owed = 1;                       // held from there to its backward_weight (M_W)
  double activations = 1;                // zb_auto: the most that a stage may hold, in units of stages x kept
  std::string file;                      // custom: where the plan is written
};

struct Action {
  Verb verb;  // forward, backward_input or backward_weight
  int16_t microbatch, chunk;
  // Of a backward_input: its weight half goes along, block by block, and the gradient leaves at the end; there is no
  // backward_weight of its own.
  bool whole = false;
  bool operator==(const Action&) const = default;
};
using Orders = std::vector<std::vector<Action>>;  // per stage

// Where chunks lie in the model: one after another over the stages, or there and back again.
enum class Placement : uint8_t { looped, vee };
inline int position_at(Placement p, const PipeShape& s, int stage, int chunk) {
  return chunk * s.stages + (p == Placement::vee && chunk % 2 == 1 ? s.stages - 1 - stage : stage);
}

struct Schedule {
  std::string_view name;
  Orders (*plan)(const PipeShape&, const Limits&);
  int chunks = 1;  // that each stage must have; 0: any number
  Placement placement = Placement::looped;
  Limits limits{};
  // Throws Error(spec) for a shape that the schedule cannot run.
  Orders orders(const PipeShape&) const;
};

}  // namespace trainer
