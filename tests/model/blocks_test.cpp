// Blocks against central differences, themselves recomputed, and themselves a token at a time.
#include <cmath>

#include "tests/model/run_model.h"
#include "tests/model/specs.h"
#include "tests/support/compare.h"

using namespace trainer;
using namespace trainer::test;

namespace {

double norm_of(const Values& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

// Loss of the training phase, dropout included, with a piece moved by `step` along `direction`.
double loss_at(RunModel& run, const Sample& sample, ParamId id, const Param::Piece& piece, const Values& direction,
               double step) {
  const Values before = piece_values(run.param(id), piece);
  Values moved = before;
  for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
  set_piece(run.param(id), piece, moved);
  const double loss = run.train(sample).loss_sum;
  set_piece(run.param(id), piece, before);
  return loss;
}

std::vector<std::vector<std::byte>> gradient_bytes(const RunModel& run) {
  std::vector<std::vector<std::byte>> all;
  for (ParamId id = 0; id < run.model().params.size(); ++id) all.push_back(run.grad(id).bytes());
  return all;
}

}  // namespace

TEST_CASE("gradients of all parameters agree with central differences of the loss") {
  for (const NamedSpec& variant : all_variants()) {
    RunModel run(variant.spec);
    run.control.step = 3;
    run.control.seed = 11;
    const Sample sample = random_sample(variant.spec, 1);
    run.train(sample);
    std::vector<Values> gradients;
    for (ParamId id = 0; id < run.model().params.size(); ++id) gradients.push_back(run.grad(id).values());
    for (ParamId id = 0; id < run.model().params.size(); ++id) {
      const Param& param = run.model().params[id];
      const test::Buffer gradient(DType::f32, param.local, gradients[id]);
      for (const Param::Piece& piece : param.pieces) {
        const Values g = piece_values(gradient, piece);
        const double size = norm_of(g);
        for (uint32_t seed : {0u, 1u}) {  // along the gradient, then along noise
          Values direction = seed ? random_values(int64_t(g.size()), seed) : g;
          const double length = std::max(norm_of(direction), 1e-3);
          double wanted = 0;
          for (size_t i = 0; i < g.size(); ++i) wanted += (direction[i] /= length) * g[i];
          constexpr double kStep = 4e-3;
          const double difference =
              (loss_at(run, sample, id, piece, direction, kStep) - loss_at(run, sample, id, piece, direction, -kStep)) /
              (2 * kStep);
          INFO(variant.name << ", " << piece.tensor << ", |g| " << size);
          CHECK(difference == Approx(wanted).margin(2e-3 * size + 2e-3));
        }
      }
    }
  }
}

TEST_CASE("what recompute restores gives bit-identical gradients") {
  for (const NamedSpec& variant : all_variants()) {
    RunModel run(variant.spec);
    run.control.seed = 5;
    const Sample sample = random_sample(variant.spec, 2);
    const double loss = run.train(sample).loss_sum;
    const auto wanted = gradient_bytes(run);
    for (const RecomputeLevel level : {RecomputeLevel::selective, RecomputeLevel::full}) {
      INFO(variant.name << ", level " << int(level));
      REQUIRE(run.train(sample, level).loss_sum == loss);
      REQUIRE(gradient_bytes(run) == wanted);
    }
  }
}

TEST_CASE("two accumulated micro-batches equal one of double size") {
  for (const NamedSpec& variant : all_variants()) {
    RunModel both(variant.spec);
    const Sample whole = random_sample(variant.spec, 3);
    const Outcome outcome = both.train(whole);
    RunSpec half_spec = variant.spec;
    half_spec.train.micro_batch = 1;
    RunModel halves(half_spec);
    double loss = 0;
    for (size_t half = 0, T = size_t(half_spec.data.seq_len); half < 2; ++half) {
      const auto part = [&](const auto& v) {
        return std::decay_t<decltype(v)>(v.begin() + half * T, v.begin() + (half + 1) * T);
      };
      const Sample s{part(whole.tokens),   part(whole.targets), part(whole.positions),
                     part(whole.segments), part(whole.weights), part(whole.rows)};
      loss += halves.train(s, RecomputeLevel::none, half == 1).loss_sum;
    }
    INFO(variant.name);
    REQUIRE(loss == Approx(outcome.loss_sum).epsilon(1e-6));
    for (ParamId id = 0; id < both.model().params.size(); ++id)
      require_close(halves.grad(id), both.grad(id).values(), {1e-5, 2e-5});
  }
}

TEST_CASE("padded rows of the vocabulary receive no gradient, and evaluation is the loss without dropout") {
  RunSpec spec = tiny_spec(Family::gpt2);
  RunModel run(spec);
  const Sample sample = random_sample(spec, 4);
  const Outcome trained = run.train(sample);
  REQUIRE(run.evaluate(sample).loss_sum == trained.loss_sum);
  REQUIRE(trained.tokens < double(sample.tokens.size()));
  const Values g = run.grad(0).values();
  REQUIRE(run.model().params[0].local == Shape{128, 12});
  REQUIRE(std::all_of(g.begin() + 70 * 12, g.end(), [](double x) { return x == 0; }));

  spec.model.dropout = 0.3;
  RunModel dropping(spec);
  REQUIRE(dropping.evaluate(sample).loss_sum == trained.loss_sum);
  const double first = dropping.train(sample).loss_sum;
  REQUIRE(first != trained.loss_sum);
  dropping.control.step = 1;
  REQUIRE(dropping.train(sample).loss_sum != first);
}

TEST_CASE("logits a token at a time against the cache equal those of the whole sequence") {
  for (const NamedSpec& variant : all_variants()) {
    if (variant.spec.data.packing == Packing::document) continue;
    RunSpec spec = variant.spec;
    spec.train.micro_batch = 1;
    RunModel whole(spec);
    const Sample sample = random_sample(spec, 5);
    spec.data.seq_len = 1;
    RunModel one(spec);
    INFO(variant.name);
    require_close(one.generate(sample.tokens), whole.logits(sample), {1e-5, 1e-5});
  }
}

TEST_CASE("in bf16, loss and gradients are those of f32 but for rounding") {
  for (const NamedSpec& variant : all_variants()) {
    RunModel exact(variant.spec);
    RunSpec rounded_spec = variant.spec;
    rounded_spec.precision.compute = Precision::bf16;
    RunModel rounded(rounded_spec);
    for (ParamId id = 0; id < exact.model().params.size(); ++id) exact.param(id).set(rounded.param(id).values());
    const Sample sample = random_sample(variant.spec, 6);
    const double loss = exact.train(sample).loss_sum;
    INFO(variant.name);
    CHECK(rounded.train(sample).loss_sum == Approx(loss).epsilon(5e-3));
    for (ParamId id = 0; id < exact.model().params.size(); ++id) {
      Values difference = rounded.grad(id).values();
      const Values wanted = exact.grad(id).values();
      for (size_t i = 0; i < wanted.size(); ++i) difference[i] -= wanted[i];
      INFO(exact.model().params[id].name);
      CHECK(norm_of(difference) <= 0.05 * norm_of(wanted) + 0.02);
    }
  }
}
