// Every operation that a model launches, as the obvious loop in double: what the CPU's kernels are compared with.
#pragma once

namespace trainer::test {

// Puts them into the tables of DeviceKind::cpu. Work is done on the lane's own thread.
void install_naive_kernels();

}  // namespace trainer::test
