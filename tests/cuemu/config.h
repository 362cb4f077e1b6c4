// How the emulated device orders what CUDA leaves without an order, and how big it is.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cuemu {

// random: blocks shuffled; in a block either uniform or by strict random priorities of warps, which finds what starves
// (Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs", 2010).
// forward, reverse: threads take turns, first or last thread first; for contrast.
enum class Order { random, forward, reverse };

struct Schedule {
  uint64_t seed = 1;
  Order order = Order::random;
};

struct Config {
  Schedule schedule;                 // CUEMU_SEED, CUEMU_ORDER=random|forward|reverse
  int workers = 2;                   // CUEMU_WORKERS: OS threads that blocks are spread over
  size_t shared_bytes = 227u << 10;  // CUEMU_SMEM_KB: shared memory that a block can have
};

Config& config();  // read from the environment once

// For launches that start from here on.
void set_schedule(Schedule);
void set_seed(uint64_t seed);

}  // namespace cuemu
