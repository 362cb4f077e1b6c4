#include "tests/ranks/compare_layouts.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

namespace trainer::test {
namespace {

// What is compared with what: the same model and the same sequences on one rank.
Layout one_rank(Layout l) {
  l.accumulation *= l.dp;
  l.tp = l.dp = l.pp = l.chunks = 1;
  l.schedule = PipelineKind::one_f_one_b;
  l.zero = l.zero_shard = 0;
  l.sequence_parallel = false;
  l.recompute = RecomputeKind::none;
  l.gradients = l.reduce = Precision::fp32;
  l.device = DeviceChoice::cpu;
  l.graph = false;
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
// addition; GPT-2's biases, which begin at zero, have some that are mostly rounding: nine layers under dp 2 alone
// are 1.3e-4 from one rank.
struct Bound {
  double loss, norm, weights;
};
Bound bound_of(const Layout& l) {
  if (l.compute == Precision::bf16) return {5e-3, 5e-2, 1e-1};
  const bool rounded = l.gradients == Precision::bf16 || l.reduce == Precision::bf16;
  return rounded ? Bound{5e-5, 2e-3, 2e-1} : Bound{1e-5, 1e-5, l.family == Family::gpt2 ? 5e-4 : 1e-4};
}

}  // namespace

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

}  // namespace trainer::test
