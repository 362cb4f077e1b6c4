#include "tests/cuemu/config.h"
#include "tests/cuemu/stats.h"
#include "tests/fakecuda/fake_cuda.h"
#include "tests/support/cuda/schedule.h"

namespace trainer::test {

// Two random orders, and the reverse one. The environment's seed and order move all of them.
void test_schedule(int run) {
  static const cuemu::Schedule first = cuemu::config().schedule;
  constexpr uint64_t kApart = 1000003;
  const uint64_t seed = first.seed + kApart * uint64_t(run);
  const bool reverse = run == 2 && first.order == cuemu::Order::random;
  cuemu::set_schedule({seed, reverse ? cuemu::Order::reverse : first.order});
  fake::set_seed(seed);
}

std::optional<WarpCounts> warp_counts() {
  const cuemu::Stats& s = cuemu::stats();
  return WarpCounts{s.mma, s.ldm_conflict_ways + s.stm_conflict_ways};
}

}  // namespace trainer::test
