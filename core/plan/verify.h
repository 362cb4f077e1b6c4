// The proof of a program, found in another way than `link` and `bind` made it.
#pragma once
#include "core/plan/plan.h"

namespace trainer {

// Throws Error(spec) that names the instruction and the slot:
//   lifetimes   every slot is written before it is used, freed once, and nothing is used after
//   bytes       live slots of a plan share no byte, and all lie in the arena
//   order       two accesses to a byte on different lanes, one of them a write, are ordered by waits (vector clocks);
//   against any
//               earlier step of any kind, by seams
//   duties      one begin and agree, and for each bucket of the rank: every life of its gradient complete and reduced,
//   one tie where
//               it is tied, one update, one snapshot of each saved role, one gather where the weight is whole and its
//               moments are not
// That each bucket's norm is counted once in the world is for verify_world (parallel/simulate.h).
void verify(const Program&);

}  // namespace trainer
