#include "tests/ranks/layout_grid.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <set>

namespace trainer::test {
namespace {

// A stride that is coprime to the number of cells visits all of them.
std::vector<Layout> mixed(const std::vector<Layout>& all) {
  constexpr size_t kStride = 7919;
  REQUIRE(std::gcd(all.size(), kStride) == 1);
  std::vector<Layout> cells;
  for (size_t i = 0; i < all.size(); ++i) cells.push_back(all[i * kStride % all.size()]);
  return cells;
}

// One, fewer than the stages, not divisible by them, many.
std::set<int> batches_of(int pp) { return {1, pp - 1, pp + 1, 2 * pp}; }

}  // namespace

std::vector<Layout> layout_grid() {
  std::vector<Layout> all;
  for (Family family : {Family::gpt2, Family::llama})
    for (int tp : {1, 2, 3, 4})
      for (bool sp : {false, true})
        for (int dp : {1, 2, 3})
          for (int zero : {0, 1, 2, 3})
            for (int accumulation : {1, 3})
              for (RecomputeKind r : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full}) {
                if ((sp && tp == 1) || (zero > 0 && dp == 1) || tp * dp == 1) continue;
                all.push_back({.family = family,
                               .tp = tp,
                               .dp = dp,
                               .zero = zero,
                               .accumulation = accumulation,
                               .sequence_parallel = sp,
                               .tied = (tp + dp + zero) % 2 == 0,
                               .recompute = r});
              }
  return mixed(all);
}

std::vector<Layout> pipeline_grid() {
  std::vector<Layout> all;
  for (const Pipe& pipe : kPipes)
    for (int pp : {2, 3, 4})
      for (int m : batches_of(pp))
        for (int tp : {1, 2})
          for (int dp : {1, 2})
            for (int zero : {0, 1, 2, 3})
              for (RecomputeKind r : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full}) {
                if (zero > 0 && dp == 1) continue;
                const bool even = (pp + m + tp + zero) % 2 == 0;  // what else differs, by turns
                all.push_back({.family = (m + zero) % 2 ? Family::gpt2 : Family::llama,
                               .tp = tp,
                               .dp = dp,
                               .zero = zero,
                               .accumulation = m,
                               .pp = pp,
                               .chunks = pipe.chunks,
                               .layers = pp * pipe.chunks + even,
                               .schedule = pipe.schedule,
                               .sequence_parallel = tp > 1 && even,
                               .tied = (m + tp + zero) % 2 == 0,
                               .recompute = r});
              }
  return mixed(all);
}

}  // namespace trainer::test
