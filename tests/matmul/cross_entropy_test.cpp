// The head against float64: loss, counts, gradients, chunks, masks, padding.
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/ops/control.h"
#include "core/ops/cross_entropy.h"
#include "tests/support/gradient_check.h"
#include "tests/support/run_op.h"

using namespace trainer;
using namespace trainer::test;

namespace {

struct HeadCase {
  int64_t rows, width, padded, vocab, chunk;
  DType dtype = DType::f32;
  bool train = true, accumulate = false;
};

// Every third row is masked; weights are otherwise 1 or 0.5.
class Head {
 public:
  explicit Head(const HeadCase& h, double scale = 1)
      : x(random_buffer(h.dtype, {h.rows, h.width}, 1, scale)),
        weight(random_buffer(h.dtype, {h.padded, h.width}, 2)),
        d_x(random_buffer(h.dtype, {h.rows, h.width}, 3)),
        d_weight(random_buffer(DType::f32, {h.padded, h.width}, 4)),
        targets(DType::i32, {h.rows}),
        weights(DType::f32, {h.rows}),
        outcome(DType::f64, {6}, Values{1, 2, 3, 0, 0, 0}),
        row_loss(DType::f32, {h.rows}) {
    Values t(static_cast<size_t>(h.rows)), w(t);
    for (size_t i = 0; i < t.size(); ++i) {
      t[i] = double(i * 7919 % size_t(h.vocab));
      w[i] = i % 3 == 1 ? 0 : i % 3 ? 0.5 : 1;
    }
    targets.set(t);
    weights.set(w);
    op = {d_x, d_weight, x, weight, targets, weights, outcome, row_loss, h.vocab, h.chunk, h.train, h.accumulate};
    if (!h.train) op.d_x = op.d_weight = {};
  }

  Buffer x, weight, d_x, d_weight, targets, weights, outcome, row_loss;
  LinearCrossEntropy op;
};

struct Wanted {
  double loss = 0, tokens = 0;
  Values row_loss, d_x, d_weight;
};
Wanted reference(const Head& h, const Values& x, const Values& weight) {
  const size_t rows = size_t(h.op.x.rows()), width = size_t(h.op.x.shape[1]), vocab = size_t(h.op.vocab);
  const Values targets = h.targets.values(), weights = h.weights.values();
  Wanted w{0, 0, Values(rows), Values(rows * width), h.op.accumulate ? h.d_weight.values() : Values(weight.size())};
  for (size_t i = 0; i < rows; ++i) {
    Values p(vocab);
    double sum = 0;
    for (size_t v = 0; v < vocab; ++v) {
      for (size_t c = 0; c < width; ++c) p[v] += x[i * width + c] * weight[v * width + c];
      sum += std::exp(p[v]);
    }
    const size_t target = size_t(targets[i]);
    w.row_loss[i] = weights[i] * (std::log(sum) - p[target]);
    w.loss += w.row_loss[i];
    w.tokens += weights[i];
    for (size_t v = 0; v < vocab; ++v) {
      const double g = weights[i] * (std::exp(p[v]) / sum - (v == target ? 1 : 0));
      for (size_t c = 0; c < width; ++c) {
        w.d_x[i * width + c] += g * weight[v * width + c];
        w.d_weight[v * width + c] += g * x[i * width + c];
      }
    }
  }
  return w;
}

void check_head(const HeadCase& c) {
  CAPTURE(c.rows, c.width, c.padded, c.vocab, c.chunk, name_of(c.dtype), c.train, c.accumulate);
  const Head h(c);
  const Wanted w = reference(h, h.x.values(), h.weight.values());
  const std::vector<std::byte> d_x = h.d_x.bytes(), d_weight = h.d_weight.bytes();
  run_op(h.op);
  const bool narrow = c.dtype == DType::bf16;  // logits and their gradients are rounded
  const double tolerance = narrow ? 2e-2 : 1e-5;
  require_close(h.row_loss, w.row_loss, {tolerance, tolerance});
  const Values outcome = h.outcome.values();
  require_close(outcome, {1 + w.loss, 2 + w.tokens, 3, 0, 0, 0}, {tolerance / 10, tolerance / 10});
  REQUIRE(outcome[1] == 2 + w.tokens);
  if (!c.train) {
    REQUIRE(h.d_x.bytes() == d_x);
    REQUIRE(h.d_weight.bytes() == d_weight);
    return;
  }
  require_close(h.d_x, w.d_x, {tolerance, tolerance});
  require_close(h.d_weight, w.d_weight, {tolerance, tolerance});
}

}  // namespace

TEST_CASE("head: loss and gradients over odd sizes, chunks that do not divide, masked rows and padded vocabularies") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (bool accumulate : {false, true}) {
      check_head({1, 3, 1, 1, 64, dtype, true, accumulate});
      check_head({3, 17, 5, 5, 64, dtype, true, accumulate});
      check_head({65, 17, 64, 63, 64, dtype, true, accumulate});
      check_head({130, 33, 128, 65, 48, dtype, true, accumulate});
      check_head({7, 65, 384, 301, 3, dtype, true, accumulate});
    }
}

TEST_CASE("head: without training only the losses are written") {
  for (DType dtype : {DType::f32, DType::bf16}) check_head({65, 17, 64, 63, 32, dtype, false});
}

TEST_CASE("head: gradients agree with central differences") {
  const Head h({7, 5, 16, 11, 4});
  run_op(h.op);
  const Values x = h.x.values(), weight = h.weight.values();
  const auto loss_of_x = [&](const Values& v) { return reference(h, v, weight).loss; };
  const auto loss_of_weight = [&](const Values& v) { return reference(h, x, v).loss; };
  require_close(h.d_x, central_difference(loss_of_x, x), {1e-4, 1e-4});
  require_close(h.d_weight, central_difference(loss_of_weight, weight), {1e-4, 1e-4});
}

TEST_CASE("head: the same bits with any number of threads") {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const HeadCase c{130, 33, 128, 65, 48, dtype};
    const Head one(c);
    run_op(one.op, 1);
    for (int threads : {2, 3}) {
      const Head other(c);
      run_op(other.op, threads);
      REQUIRE(other.d_x.bytes() == one.d_x.bytes());
      REQUIRE(other.d_weight.bytes() == one.d_weight.bytes());
      REQUIRE(other.outcome.bytes() == one.outcome.bytes());
      REQUIRE(other.row_loss.bytes() == one.row_loss.bytes());
    }
  }
}

TEST_CASE("head: the loss does not depend on the chunk") {
  const Head whole({130, 33, 128, 65, 130}), parts({130, 33, 128, 65, 7});
  run_op(whole.op);
  run_op(parts.op);
  REQUIRE(whole.outcome.bytes() == parts.outcome.bytes());
  REQUIRE(whole.d_x.bytes() == parts.d_x.bytes());
}

TEST_CASE("head: large logits neither overflow nor lose the loss") {
  const Head h({9, 17, 64, 63, 64}, 3000);
  const Wanted w = reference(h, h.x.values(), h.weight.values());
  REQUIRE(!std::isfinite(w.loss));  // plain exponentials do overflow
  run_op(h.op);
  for (double loss : h.row_loss.values()) REQUIRE(std::isfinite(loss));
  for (double g : h.d_x.values()) REQUIRE(std::isfinite(g));
}

TEST_CASE("head: a target outside the vocabulary is an error of the data that names row and value") {
  for (double bad : {-1.0, 63.0}) {
    const Head h({9, 17, 64, 63, 64});
    Values targets = h.targets.values();
    targets[5] = bad;
    Buffer wrong(DType::i32, {9}, targets);
    LinearCrossEntropy op = h.op;
    op.targets = wrong;
    REQUIRE_THROWS_WITH(run_op(op), Catch::Contains("row 5 is " + std::to_string(int(bad))));
  }
}
