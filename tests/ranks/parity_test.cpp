// The parity grid: every layout gives one rank's losses, norms and weights, and the same bits when it runs again.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>

#include "tests/ranks/layouts.h"

using namespace trainer;
using namespace trainer::test;

namespace {

// What is compared with what: the same model and the same sequences on one rank.
Layout one_rank(Layout l) {
  l.accumulation *= l.dp;
  l.tp = l.dp = 1;
  l.zero = l.zero_shard = 0;
  l.sequence_parallel = false;
  l.recompute = RecomputeKind::none;
  l.gradients = l.reduce = Precision::fp32;
  return l;
}

const Outcomes& reference(const Layout& l) {
  static std::map<std::string, Outcomes> done;
  const Layout one = one_rank(l);
  const auto it = done.find(one.name());
  return it != done.end() ? it->second : done.insert({one.name(), run(one)}).first->second;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    norm += double(b[i]) * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

// A key's bias shifts all scores of a query alike, so its true gradient is zero and Adam steps by rounding noise.
std::vector<float> without_key_bias(const std::string& tensor, std::vector<float> values) {
  if (tensor.ends_with("attn.c_attn.bias"))
    values.erase(values.begin() + long(values.size() / 3), values.begin() + long(values.size() * 2 / 3));
  return values;
}

// Bounds: fp32 sums in another order; bf16 rounds partial sums, about three digits a step, and Adam makes steps of full
// size out of gradients that are mostly rounding. Gradients rounded to bf16 under fp32 are off by at most 2^-8 at each
// addition; GPT-2's biases, which begin at zero, have some that are mostly rounding.
struct Bound {
  double loss, norm, weights;
};
Bound bound_of(const Layout& l) {
  if (l.compute == Precision::bf16) return {5e-3, 5e-2, 1e-1};
  const bool rounded = l.gradients == Precision::bf16 || l.reduce == Precision::bf16;
  return rounded ? Bound{5e-5, 2e-3, 2e-1} : Bound{1e-5, 1e-5, 1e-4};
}

void compare(const Layout& l) {
  INFO(l.name());
  const Outcomes &one = reference(l), many = run(l);
  const Bound bound = bound_of(l);
  for (size_t step = 0; step < kSteps; ++step) {
    INFO("step " << step);
    REQUIRE(many.steps[step].tokens == one.steps[step].tokens);
    REQUIRE(many.steps[step].loss == Approx(one.steps[step].loss).epsilon(bound.loss).margin(0));
    REQUIRE(many.steps[step].grad_norm == Approx(one.steps[step].grad_norm).epsilon(bound.norm).margin(0));
  }
  REQUIRE(many.weights.size() == one.weights.size());
  for (const auto& [tensor, values] : one.weights) {
    INFO(tensor);
    const auto found = many.weights.find(tensor);
    REQUIRE(found != many.weights.end());
    REQUIRE(distance(without_key_bias(tensor, found->second), without_key_bias(tensor, values)) <= bound.weights);
  }
}

void compare_bits(const Outcomes& a, const Outcomes& b) {
  for (size_t step = 0; step < kSteps; ++step) {
    REQUIRE(a.steps[step].loss == b.steps[step].loss);
    REQUIRE(a.steps[step].grad_norm == b.steps[step].grad_norm);
  }
  REQUIRE(a.weights == b.weights);
}

constexpr size_t kStride = 7919;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;  // ten times slower
#else
constexpr bool kInstrumented = false;
#endif

// All cells of the grid.
std::vector<Layout> grid() {
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
  return all;
}

}  // namespace

TEST_CASE("the parity grid") {
  const std::vector<Layout> all = grid();
  const char* part = std::getenv("TRAINER_GRID_EVERY");  // 1: every cell
  const size_t every = part ? size_t(std::atoi(part)) : kInstrumented ? 50 : 3;
  // A stride that is coprime to the grid's size visits every cell, in an order that mixes all axes.
  REQUIRE(std::gcd(all.size(), kStride) == 1);
  for (size_t i = 0; i * every < all.size(); ++i) compare(all[i * kStride % all.size()]);
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
