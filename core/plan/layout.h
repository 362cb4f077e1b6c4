// Offsets: every slot of every plan gets its bytes of the one arena.
//
// From 0 on: control, outcome, the state; above them the slots that come and go, each plan from the same base, best
// fit in the order of the list; above the highest of these the lanes' scratch. Everything is aligned to kArenaAlign.
#pragma once
#include "core/plan/plan.h"

namespace trainer {

inline constexpr size_t kArenaAlign = 128;  // two cache lines, for the prefetcher pairs them; enough for any vector
constexpr size_t arena_aligned(size_t bytes) { return (bytes + kArenaAlign - 1) / kArenaAlign * kArenaAlign; }

// Without reuse every slot has bytes of its own: then `link` finds the dependencies of data alone.
enum class Reuse : bool { no, yes };
// Fills the offsets of state, control, outcome and uses. Throws where a slot is used before it is written or after it
// was freed.
void layout(Program&, Reuse);
// Of control, outcome, ballots and verdict.
size_t record_bytes(const Program&);
// Where the dynamic slots begin, and where they end at their highest.
size_t static_bytes(const Program&);
size_t dynamic_top(const Program&);
// Gives each lane its scratch above the dynamic slots, and so the arena its size.
void place_scratch(Program&, const std::array<size_t, kLanes>& bytes);

}  // namespace trainer
