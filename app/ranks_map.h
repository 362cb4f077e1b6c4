// Who is where: the ranks of a world on its hosts, and the groups they form.
#pragma once
#include <ostream>

#include "core/spec/run_spec.h"

namespace trainer {

// One line per rank, then the groups of each axis, then what is unfavourable about them: a tp group that leaves a host,
// dp or pp groups whose local ranks differ from host to host (not rail-aligned). Hosts hold `ranks_per_host`
// consecutive ranks. Throws Error(spec) where the degrees do not fit the world.
void print_ranks_map(std::ostream&, const RunSpec&, int world, int ranks_per_host);

}  // namespace trainer
