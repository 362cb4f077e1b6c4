// Before step 0 on a GPU: every product's algorithm is chosen, by the file that device.heuristics names.
#pragma once
#include <string>
#include <vector>

#include "app/planning.h"
#include "parallel/comm/exchange.h"

namespace trainer {

// Rank 0's file counts for all ranks; what it lacks is found by timing, once per shape in the world, and rank 0 writes
// it back. Without a file each product takes what cuBLASLt suggests first. What the arena holds is lost. Returns
// sentences for the run's log. Collective over the exchange. Throws Error(spec): a file that is wrong, or of another
// GPU or cuBLASLt; Error(disk): one that cannot be read or written; Error(device): products that cuBLASLt does not
// compute, unless device.fallback allows the plain kernel.
std::vector<std::string> choose_algorithms(const Planned&, Device&, Exchange&);

// Of the products that this thread's kernels prepared for since it was last asked: a sentence where the plain kernel
// will compute some, else empty. Throws Error(device) where it may not.
std::string check_products(bool plain_allowed);

}  // namespace trainer
