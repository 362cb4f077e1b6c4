// The head against float64: loss, counts, gradients, chunks, masks, padding.
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/ops/control.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/matmul.h"
#include "tests/support/gradient_check.h"
#include "run_op.h"

using namespace trainer;
using namespace trainer::test;

namespace {

struct HeadCase {
  int64_t rows, width, padded, vocab, chunk;
  DType dtype = DType::f32;
  bool train = true, accumulate = false;
  int64_t slices = 1;  // each of `padded` rows
};

// One slice of the vocabulary: what a rank of a tp group has.
struct HeadSlice {
  HeadSlice(const HeadCase& h, int64_t index, const Values& whole_weight)
      : range{std::min(h.vocab, index * cut(h)), 0, h.vocab},
        weight(h.dtype, {h.padded, h.width}),
        d_weight(random_buffer(DType::f32, {h.padded, h.width}, 4)),
        d_x(random_buffer(h.dtype, {h.rows, h.width}, 3)),
        logits(h.dtype, {std::min(h.rows, h.chunk), h.padded}) {
    range.count = std::min(h.vocab, (index + 1) * cut(h)) - range.first;
    Values rows = random_values(weight.elements(), 9);  // padding must not show
    std::copy_n(whole_weight.begin() + range.first * h.width, range.count * h.width, rows.begin());
    weight.set(rows);
  }
  static int64_t cut(const HeadCase& h) { return (h.vocab + h.slices - 1) / h.slices; }

  VocabularySlice range;
  Buffer weight, d_weight, d_x, logits;
};

// The head as the block issues it, its ranks in turn. Every third row is masked; weights are otherwise 1 or 0.5.
class Head {
 public:
  explicit Head(const HeadCase& h, double scale = 1)
      : what(h),
        x(random_buffer(h.dtype, {h.rows, h.width}, 1, scale)),
        weight(random_buffer(h.dtype, {h.vocab, h.width}, 2)),
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
    for (int64_t i = 0; i < h.slices; ++i) slices.emplace_back(h, i, weight.values());
  }

  void run(int threads = 2) {
    for (int64_t begin = 0; begin < what.rows; begin += what.chunk)
      run_chunk(begin, std::min(what.rows, begin + what.chunk), threads);
  }

  // Of all slices: the sum, and their real rows one below the other.
  Values d_x() const {
    Values sum(size_t(x.elements()));
    for (const HeadSlice& s : slices) {
      const Values part = s.d_x.values();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    return sum;
  }
  Values d_weight() const {
    Values all;
    for (const HeadSlice& s : slices) {
      const Values part = s.d_weight.values();
      all.insert(all.end(), part.begin(), part.begin() + s.range.count * what.width);
    }
    return all;
  }

  HeadCase what;
  Buffer x, weight, targets, weights, outcome, row_loss;
  std::vector<HeadSlice> slices;

 private:
  void run_chunk(int64_t begin, int64_t end, int threads) {
    const auto rows = [&](const Buffer& b) { return row_part(b, begin, end); };
    const auto logits = [&](const HeadSlice& s) { return row_part(s.logits, 0, end - begin); };
    const Buffer records(DType::f32, {what.slices, end - begin, kLogitRecord});
    for (size_t i = 0; i < slices.size(); ++i) {
      const HeadSlice& s = slices[i];
      MatMul product{.c = logits(s), .a = rows(x), .b = s.weight, .bias = {}, .residual = {}, .transpose_b = true};
      run_op(product, threads);
      const Tensor own = reshaped(row_part(records, int64_t(i), int64_t(i) + 1), {end - begin, kLogitRecord});
      run_op(LogitRecords{own, logits(s), rows(targets), s.range}, threads);
    }
    for (size_t i = 0; i < slices.size(); ++i) {
      const HeadSlice& s = slices[i];
      const Tensor outcome_once = i == 0 ? outcome.tensor() : Tensor{};
      run_op(CrossEntropy{logits(s), records, rows(targets), rows(weights), outcome_once, rows(row_loss), s.range,
                          what.train},
             threads);
      if (!what.train) continue;
      run_op(MatMul{.c = rows(s.d_x), .a = logits(s), .b = s.weight, .bias = {}, .residual = {}}, threads);
      run_op(MatMul{.c = s.d_weight,
                    .a = logits(s),
                    .b = rows(x),
                    .bias = {},
                    .residual = {},
                    .transpose_a = true,
                    .accumulate = what.accumulate || begin > 0},
             threads);
    }
  }
};

struct Wanted {
  double loss = 0, tokens = 0;
  Values row_loss, d_x, d_weight;
};
Wanted reference(const Head& h, const Values& x, const Values& weight) {
  const size_t rows = size_t(h.what.rows), width = size_t(h.what.width), vocab = size_t(h.what.vocab);
  const Values targets = h.targets.values(), weights = h.weights.values();
  Wanted w{0, 0, Values(rows), Values(rows * width), h.what.accumulate ? h.d_weight() : Values(weight.size())};
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
  CAPTURE(c.rows, c.width, c.padded, c.vocab, c.chunk, name_of(c.dtype), c.train, c.accumulate, c.slices);
  Head h(c);
  const Wanted w = reference(h, h.x.values(), h.weight.values());
  h.run();
  const bool narrow = c.dtype == DType::bf16;  // logits and their gradients are rounded
  const double tolerance = narrow ? 2e-2 : 1e-5;
  require_close(h.row_loss, w.row_loss, {tolerance, tolerance});
  const Values outcome = h.outcome.values();
  require_close(outcome, {1 + w.loss, 2 + w.tokens, 3, 0, 0, 0}, {tolerance / 10, tolerance / 10});
  REQUIRE(outcome[1] == 2 + w.tokens);
  for (const HeadSlice& s : h.slices) REQUIRE(s.logits.intact());
  if (!c.train) return;
  require_close(h.d_x(), w.d_x, {tolerance, tolerance});
  require_close(h.d_weight(), w.d_weight, {tolerance, tolerance});
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

TEST_CASE("head: a vocabulary of many vectors for every thread") {
  for (DType dtype : {DType::f32, DType::bf16}) check_head({3, 3, 20032, 20011, 64, dtype});
}

TEST_CASE("head: slices of the vocabulary, even one of padding alone, know the loss together") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t slices : {2, 3, 4}) {
      check_head({65, 17, 64, 97, 64, dtype, true, false, slices});
      check_head({7, 33, 64, 5, 3, dtype, true, true, slices});
      check_head({65, 17, 64, 63, 32, dtype, false, false, slices});
    }
}

TEST_CASE("head: without training only the losses are written") {
  for (DType dtype : {DType::f32, DType::bf16}) {
    check_head({65, 17, 64, 63, 32, dtype, false});
    Head h({9, 17, 64, 63, 9, dtype, false});
    h.run();
    const std::vector<std::byte> logits = h.slices[0].logits.bytes();
    h.run();
    REQUIRE(h.slices[0].logits.bytes() == logits);
  }
}

TEST_CASE("head: gradients agree with central differences") {
  for (int64_t slices : {1, 2}) {
    Head h({7, 5, 16, 11, 4, DType::f32, true, false, slices});
    h.run();
    const Values x = h.x.values(), weight = h.weight.values();
    const auto loss_of_x = [&](const Values& v) { return reference(h, v, weight).loss; };
    const auto loss_of_weight = [&](const Values& v) { return reference(h, x, v).loss; };
    require_close(h.d_x(), central_difference(loss_of_x, x), {1e-4, 1e-4});
    require_close(h.d_weight(), central_difference(loss_of_weight, weight), {1e-4, 1e-4});
  }
}

TEST_CASE("head: the gradients of padding are zero") {
  Head h({9, 17, 64, 37, 64});
  h.run();
  const Values d_weight = h.slices[0].d_weight.values();
  REQUIRE(std::all_of(d_weight.begin() + 37 * 17, d_weight.end(), [](double x) { return x == 0; }));
}

TEST_CASE("head: the same bits with any number of threads") {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const HeadCase c{130, 33, 128, 65, 48, dtype};
    Head one(c);
    one.run(1);
    for (int threads : {2, 3}) {
      Head other(c);
      other.run(threads);
      REQUIRE(other.d_x() == one.d_x());
      REQUIRE(other.d_weight() == one.d_weight());
      REQUIRE(other.outcome.bytes() == one.outcome.bytes());
      REQUIRE(other.row_loss.bytes() == one.row_loss.bytes());
    }
  }
}

TEST_CASE("head: the loss does not depend on the chunk") {
  Head whole({130, 33, 128, 65, 130}), parts({130, 33, 128, 65, 7});
  whole.run();
  parts.run();
  REQUIRE(whole.outcome.bytes() == parts.outcome.bytes());
  REQUIRE(whole.d_x() == parts.d_x());
}

TEST_CASE("head: large logits neither overflow nor lose the loss") {
  for (int64_t slices : {1, 3}) {
    Head h({9, 17, 64, 63, 64, DType::f32, true, false, slices}, 3000);
    const Wanted w = reference(h, h.x.values(), h.weight.values());
    REQUIRE(!std::isfinite(w.loss));  // plain exponentials do overflow
    h.run();
    for (double loss : h.row_loss.values()) REQUIRE(std::isfinite(loss));
    for (double g : h.d_x()) REQUIRE(std::isfinite(g));
  }
}

TEST_CASE("head: a target outside the vocabulary is an error of the data that names row and value, or no loss") {
  for (double bad : {-1.0, 63.0}) {
    Head h({9, 17, 64, 63, 64});
    Values targets = h.targets.values();
    targets[5] = bad;
    h.targets.set(targets);
    if constexpr (kIdsAreChecked) {
      REQUIRE_THROWS_WITH(h.run(), Catch::Contains("row 5 is " + std::to_string(int(bad))));
    } else {  // the loss shows it
      h.run();
      const Values losses = h.row_loss.values();
      for (size_t n = 0; n < losses.size(); ++n) REQUIRE(std::isnan(losses[n]) == (n == 5));
      REQUIRE(std::isnan(h.outcome.values()[0]));
    }
  }
}
