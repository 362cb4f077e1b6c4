// The text form of plans: one line per slot and per instruction. to_text(parse_plan(to_text(p))) is to_text(p).
//
//   slot act m0 b3 i0 life0 bf16 [48, 128]
//   forward m0 c0 b3 k- p- s- on compute seam 0x400 fresh 0x0 waits 3 4 uses r1@128 w2@256 x1@128
// Indices of an instruction: micro-batch, chunk, block, bucket (k), peer, slice; `-` where it has none. Uses: r(ead),
// w(rite), a(dd), x (free), then the slot's number and the offset in the arena.
#pragma once
#include <string>

#include "core/plan/plan.h"

namespace trainer {

std::string to_text(const Slot&);
std::string to_text(const Instr&);  // without waits and uses
std::string to_text(const Plan&);
std::string to_text(const Program&);  // buckets, state, scratch, and every plan
Plan parse_plan(const std::string&);  // throws Error(usage) with the line

}  // namespace trainer
