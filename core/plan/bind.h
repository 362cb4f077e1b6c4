// Uses: what every verb reads, writes, adds to and frees. Waits, lifetimes and leak checks all come from here; no other
// part knows what an instruction touches.
#pragma once
#include "core/plan/plan.h"

namespace trainer {

// A write begins a life of a slot; its last use in the list ends it, and that instruction frees it (a gathered weight
// is freed by its `release`). Reordering later must keep the order of a lane. Throws Error(spec) where a list makes no
// sense: a bucket reduced before all its parameters contributed, a slot used before it is written or written for
// nobody.
Plan bind(std::vector<Instr>, const PlanContext&, const Program&);

}  // namespace trainer
