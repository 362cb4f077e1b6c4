// The order in which the device runs what CUDA leaves open, and what it counts. emulated_schedule.cpp for the emulated
// device, device_schedule.cpp for a real one.
#pragma once
#include <cstdint>
#include <optional>

namespace trainer::test {

// For what is launched from here on: another order for every run (0, 1, 2) of the same operation.
void test_schedule(int run);

// Since the process began.
struct WarpCounts {
  uint64_t mma = 0;
  uint64_t conflicts = 0;  // rows that ldmatrix or stmatrix took one after the other
};
std::optional<WarpCounts> warp_counts();  // nothing: the device does not count

}  // namespace trainer::test
