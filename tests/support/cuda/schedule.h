// The order in which the device runs what CUDA leaves open. emulated_schedule.cpp for the emulated device,
// device_schedule.cpp for a real one.
#pragma once

namespace trainer::test {

// For what is launched from here on: another order for every run (0, 1, 2) of the same operation.
void test_schedule(int run);

}  // namespace trainer::test
