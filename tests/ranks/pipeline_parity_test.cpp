// The parity grid of pipelines: every schedule, cut and batch gives one rank's losses, norms and weights, and the same
// bits when it runs again.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

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

TEST_CASE("the parity grid of pipelines") {
  const std::vector<Layout> all = pipeline_grid();
  const char* part = std::getenv("TRAINER_GRID_EVERY");  // 1: every cell
  const size_t cells = part ? all.size() / size_t(std::atoi(part)) : kInstrumented ? 12 : 160;
  for (size_t i = 0; i < cells; ++i) compare(all[i]);
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

// A clip that some steps of the layout's are above and some below.
double dividing_clip(const Layout& l) {
  double low = INFINITY, high = 0;
  for (const StepReport& step : run(l).steps) {
    low = std::min(low, step.grad_norm);
    high = std::max(high, step.grad_norm);
  }
  return (low + high) / 2;
}

TEST_CASE("updates that run ahead of the world are those that wait for it") {
  int64_t taken_back = 0;
  int zero = 0;
  for (const Pipe& pipe : kPipes) {
    Layout waits{.dp = 2, .zero = zero, .accumulation = 3, .pp = 2, .chunks = pipe.chunks, .layers = 4};
    waits.schedule = pipe.schedule;
    waits.tied = zero % 2 == 0;
    waits.compute = zero < 2 ? Precision::bf16 : Precision::fp32;
    zero = (zero + 1) % 4;
    for (const double clip : {1e9, dividing_clip(waits)}) {
      waits.clip = clip;
      Layout ahead = waits;
      ahead.ahead = true;
      INFO(ahead.name());
      const Outcomes found = run(ahead);
      compare_bits(run(waits), found);
      taken_back += found.taken_back;
      if (clip == 1e9) REQUIRE(found.taken_back == 0);
    }
  }
  REQUIRE(taken_back > 0);
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
