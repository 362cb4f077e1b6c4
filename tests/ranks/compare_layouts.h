// Requires of a layout what every layout promises.
#pragma once
#include "tests/ranks/layouts.h"

namespace trainer::test {

// Runs the layout: tokens, losses, gradient norms and weights are those of the same model and the same sequences on one
// rank of the CPU, within the bounds that compare_layouts.cpp gives reasons for.
void compare(const Layout&);

// Two runs of one layout: the same bits.
void compare_bits(const Outcomes&, const Outcomes&);

}  // namespace trainer::test
