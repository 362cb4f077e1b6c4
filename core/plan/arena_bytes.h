// What the arena holds, for `trainer plan`.
#pragma once
#include "core/plan/plan.h"

namespace trainer {

// The sum of all classes is exactly Program::arena_bytes; alignment counts with its slot. Of the region of slots that
// come and go it tells what lives at the moment its highest byte is first in use (in the plan that reaches it):
// gathered weights, gradients and reduced gradients, and activations, which include the holes of that moment.
ArenaBytes arena_bytes(const Program&);
size_t total(const ArenaBytes&);

// Live activations (batch, act, d_act, saved, stash, work) of a plan, at their most during each action of the schedule:
// a run of instructions on the compute lane of one kind (forward, or backward with what it recomputes), micro-batch and
// chunk.
struct ActionPeak {
  bool forward = true;
  int microbatch = 0, chunk = 0;
  size_t bytes = 0;
};
std::vector<ActionPeak> activation_peaks(const Plan&);

}  // namespace trainer
