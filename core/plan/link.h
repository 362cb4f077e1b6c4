// Waits and seams from uses and offsets.
#pragma once
#include "core/plan/plan.h"

namespace trainer {

// Every hazard on bytes of the arena (a read after a write, a write after anything; reuse of memory is an ordinary
// hazard) becomes a wait, unless the waits so far imply it. Hazards on what any earlier step of any kind may have left
// running become seams.
void link(Program&);

}  // namespace trainer
