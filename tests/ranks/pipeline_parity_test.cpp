// The parity grid of pipelines: every schedule, cut and batch gives one rank's losses, norms and weights, and the same
// bits when it runs again.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <numeric>
#include <set>

#include "tests/ranks/compare_layouts.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr size_t kStride = 7919;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;  // ten times slower
#else
constexpr bool kInstrumented = false;
#endif

struct Pipe {
  PipelineKind schedule;
  int chunks;
};
constexpr Pipe kPipes[] = {
    {PipelineKind::gpipe, 1},       {PipelineKind::one_f_one_b, 1}, {PipelineKind::interleaved, 1},
    {PipelineKind::interleaved, 2}, {PipelineKind::zb_h1, 1},       {PipelineKind::zb_h2, 1},
    {PipelineKind::zb_v, 2},        {PipelineKind::zb_auto, 1},     {PipelineKind::dualpipe_v, 2}};

// One, fewer than the stages, not divisible by them, many.
std::set<int> batches_of(int pp) { return {1, pp - 1, pp + 1, 2 * pp}; }

std::vector<Layout> grid() {
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
  return all;
}

}  // namespace

TEST_CASE("the parity grid of pipelines") {
  const std::vector<Layout> all = grid();
  const char* part = std::getenv("TRAINER_GRID_EVERY");  // 1: every cell
  const size_t cells = part ? all.size() / size_t(std::atoi(part)) : kInstrumented ? 12 : 160;
  // A stride that is coprime to the grid's size visits every cell, in an order that mixes all axes.
  REQUIRE(std::gcd(all.size(), kStride) == 1);
  for (size_t i = 0; i < cells; ++i) compare(all[i * kStride % all.size()]);
}

TEST_CASE("pipelines run twice give the same bits") {
  for (const Pipe& pipe : kPipes) {
    const Layout l{.tp = 2,
                   .dp = 2,
                   .zero = 3,
                   .accumulation = 4,
                   .pp = 2,
                   .chunks = pipe.chunks,
                   .layers = 2 * pipe.chunks + 1,
                   .schedule = pipe.schedule,
                   .sequence_parallel = true};
    INFO(l.name());
    compare_bits(run(l), run(l));
  }
}

TEST_CASE("pipelines in bf16, with dropout, with shard groups") {
  for (const Pipe& pipe : kPipes) {
    const Layout base{.accumulation = 4, .pp = 2, .chunks = pipe.chunks, .layers = 4, .schedule = pipe.schedule};
    Layout l = base;
    l.compute = Precision::bf16;
    compare(l);
    l = base;
    l.family = Family::gpt2;
    l.dropout = 0.2f;
    compare(l);
    l = base;
    l.dp = 4;
    l.zero = 2;
    l.zero_shard = 2;
    compare(l);
  }
}
