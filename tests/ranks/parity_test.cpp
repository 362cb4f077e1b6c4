// The parity grid: every layout gives one rank's losses, norms and weights, and the same bits when it runs again.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <map>

#include "tests/ranks/compare_layouts.h"
#include "tests/ranks/layout_grid.h"

using namespace trainer;
using namespace trainer::test;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;  // ten times slower
#else
constexpr bool kInstrumented = false;
#endif

}  // namespace

TEST_CASE("the parity grid") {
  const std::vector<Layout> all = layout_grid();
  const char* part = std::getenv("TRAINER_GRID_EVERY");  // 1: every cell
  const size_t every = part ? size_t(std::atoi(part)) : kInstrumented ? 50 : 3;
  for (size_t i = 0; i * every < all.size(); ++i) compare(all[i]);
}

TEST_CASE("layouts run twice give the same bits") {
  for (const Layout& l : {Layout{.tp = 2, .dp = 2, .zero = 3, .accumulation = 3, .sequence_parallel = true},
                          Layout{.family = Family::gpt2, .tp = 3, .dp = 2, .zero = 2},
                          Layout{.dp = 3, .zero = 1, .recompute = RecomputeKind::full}}) {
    INFO(l.name());
    compare_bits(run(l), run(l));
  }
}

TEST_CASE("smaller shard groups") {
  for (int zero : {1, 2, 3})
    for (int shard : {1, 2})
      compare({.tp = zero == 2 ? 2 : 1, .dp = 4, .zero = zero, .zero_shard = shard, .accumulation = 2});
}

TEST_CASE("odd models in parallel") {
  for (int tp : {2, 3, 4})
    for (int kv : {1, 2, 4})
      compare({.tp = tp, .sequence_parallel = kv == 2, .tied = kv == 4, .kv_heads = kv, .vocab = 61, .ffn = 33});
  compare({.family = Family::gpt2, .tp = 2, .dp = 2, .zero = 1, .sequence_parallel = true, .dropout = 0.2f});
  compare({.tp = 3, .dropout = 0.2f});
}

TEST_CASE("many ranks in one machine") { compare({.tp = 4, .dp = 16, .zero = 3, .sequence_parallel = true}); }

TEST_CASE("bf16 in parallel") {
  for (int tp : {1, 2})
    for (int zero : {0, 3})
      compare({.tp = tp, .dp = 2, .zero = zero, .sequence_parallel = tp > 1, .compute = Precision::bf16});
}

TEST_CASE("gradients in bf16 or reduced in bf16") {
  constexpr Precision kBoth[] = {Precision::fp32, Precision::bf16};
  for (Precision gradients : kBoth)
    for (Precision reduce : kBoth)
      for (int zero : {0, 1, 2, 3}) {
        if (gradients == Precision::fp32 && reduce == Precision::fp32) continue;
        Layout l{.family = zero % 2 == 0 ? Family::gpt2 : Family::llama, .dp = 2, .zero = zero, .accumulation = 3};
        l.gradients = gradients;
        l.reduce = reduce;
        compare(l);
        l.family = Family::llama;
        l.tp = 2;
        l.sequence_parallel = zero > 1;
        l.compute = zero % 2 == 0 ? Precision::bf16 : Precision::fp32;
        compare(l);
      }
  Layout hsdp{.dp = 4, .zero = 2, .zero_shard = 2, .accumulation = 2};
  hsdp.reduce = Precision::bf16;
  compare(hsdp);
}
