// All cells of the parity grids, in an order that mixes their axes: the first cells of it are a covering subset.
#pragma once
#include "tests/ranks/layouts.h"

namespace trainer::test {

std::vector<Layout> layout_grid();    // tp, sequence parallel, dp, ZeRO, accumulation, recompute; both families
std::vector<Layout> pipeline_grid();  // and every schedule, stages, chunks, micro-batches

}  // namespace trainer::test
