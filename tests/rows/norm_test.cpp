#include "tests/rows/cases.h"
#include "tests/support/gradient_check.h"
#include "tests/support/reference.h"

using namespace trainer;
using namespace trainer::test;

namespace {

// The tensors of a norm over [rows, columns] and of its gradient. `centred` is LayerNorm.
struct Norm {
  Case c;
  bool centred;
  Buffer x = random_buffer(c, 1, 2), residual = random_buffer(c, 2), d_y = random_buffer(c, 3),
         d_residual = random_buffer(c, 4);
  Buffer weight = random_buffer(c.dtype, {c.columns}, 5), bias = random_buffer(c.dtype, {c.columns}, 6);
  Buffer y = empty_buffer(c), sum = empty_buffer(c), d_x = empty_buffer(c);
  Buffer mean{DType::f32, {c.rows}}, rstd{DType::f32, {c.rows}};
  Buffer partials{DType::f32, {(centred ? 2 : 1) * kNormPartials, c.columns}};

  void forward(bool with_residual, int threads = 0) {
    const Tensor none;
    const Tensor& r = with_residual ? residual.tensor() : none;
    const Tensor& s = with_residual ? sum.tensor() : none;
    if (centred) run_it(LayerNorm{y, mean, rstd, x, weight, bias, r, s}, {&y, &mean, &rstd, &sum}, threads);
    else run_it(RmsNorm{y, rstd, x, weight, r, s}, {&y, &rstd, &sum}, threads);
  }
  void backward(bool with_residual) {
    partials.fill(-77);
    const Tensor none;
    const Tensor& r = with_residual ? d_residual.tensor() : none;
    if (centred) run_it(LayerNormGrad{d_x, partials, d_y, x, weight, mean, rstd, r}, {&d_x, &partials}, 0);
    else run_it(RmsNormGrad{d_x, partials, d_y, x, weight, rstd, r}, {&d_x, &partials}, 0);
  }
  ReferenceNorm reference(const Values& input) const {
    return reference_norm(input, weight.values(), bias.values(), 1e-5, centred);
  }
  // d_weight, then d_bias: what the model gets by adding up the partial sums.
  Values summed_partials() const {
    const size_t half = size_t(kNormPartials * c.columns);
    const Values p = partials.values();
    Values sums = reference_column_sum({p.begin(), p.begin() + half}, size_t(c.columns));
    if (centred) {
      const Values bias_sums = reference_column_sum({p.begin() + half, p.end()}, size_t(c.columns));
      sums.insert(sums.end(), bias_sums.begin(), bias_sums.end());
    }
    return sums;
  }

 private:
  template <class Op>
  static void run_it(const Op& op, std::initializer_list<Buffer*> outputs, int threads) {
    if (threads) run_op(op, threads);
    else run_with_any_threads(op, outputs);
  }
};

Values plus(const Values& a, const Values& b) {
  return map([](double x, double y) { return x + y; }, a, b);
}
Values rounded(DType dtype, const Values& v) {
  return map([&](double x) { return round_to(dtype, x); }, v);
}

void check_norm(const Case& c, bool centred) {
  Norm norm{c, centred};
  for (const bool with_residual : {false, true}) {
    norm.forward(with_residual);
    const Values input =
        with_residual ? rounded(c.dtype, plus(norm.x.values(), norm.residual.values())) : norm.x.values();
    if (with_residual) require_close(norm.sum, input, {0, 0});
    const ReferenceNorm wanted = norm.reference(input);
    if (centred) require_close(norm.mean, wanted.mean, {1e-5, 1e-6});
    require_close(norm.rstd, wanted.rstd, {1e-5, 0});
    const bool constant = centred && c.columns == 1;  // (x - mean) is rounding alone, and rstd is large
    require_close(norm.y, wanted.y, constant ? Tolerance{1e-2, 1e-2} : rounded_once(c.dtype, 5));
  }
}

void check_norm_grad(const Case& c, bool centred) {
  if (centred && c.columns == 1) return;  // its gradient is zero times infinity
  Norm norm{c, centred};
  norm.forward(false);
  const ReferenceNorm forward = norm.reference(norm.x.values());
  ReferenceNormGrad wanted = reference_norm_grad(forward, norm.weight.values(), norm.d_y.values(), centred);
  const double size = 1 + *std::max_element(forward.rstd.begin(), forward.rstd.end());
  norm.backward(false);
  require_close(norm.d_x, wanted.d_x, rounded_once(c.dtype, 10 * size));
  Values sums = wanted.d_weight;
  if (centred) sums.insert(sums.end(), wanted.d_bias.begin(), wanted.d_bias.end());
  require_close(norm.summed_partials(), sums, {1e-5, 1e-5 * double(c.rows)});
  norm.backward(true);
  require_close(norm.d_x, plus(wanted.d_x, norm.d_residual.values()), rounded_once(c.dtype, 10 * size));
}

// d_x, d_weight and d_bias against central differences of the forward kernel.
void check_norm_slope(bool centred) {
  Norm norm{{3, 21, DType::f32, {}}, centred};
  norm.forward(false);
  norm.backward(false);
  const auto loss_of = [&](Buffer& input) {
    return [&norm, &input](const Values& v) {
      input.set(v);
      norm.forward(false, 1);
      return dot(norm.y.values(), norm.d_y.values());
    };
  };
  const auto slope = [&](Buffer& input) {
    const Values at = input.values(), gradient = central_difference(loss_of(input), at);
    input.set(at);
    return gradient;
  };
  require_close(norm.d_x, slope(norm.x), {5e-3, 5e-3});
  Values wanted = slope(norm.weight);
  if (centred) {
    const Values bias = slope(norm.bias);
    wanted.insert(wanted.end(), bias.begin(), bias.end());
  }
  require_close(norm.summed_partials(), wanted, {5e-3, 5e-3});
}

}  // namespace

TEST_CASE("RMSNorm agrees with float64, with and without a residual") {
  for_each_case([](const Case& c) { check_norm(c, false); });
}
TEST_CASE("LayerNorm agrees with float64, with and without a residual") {
  for_each_case([](const Case& c) { check_norm(c, true); });
}
TEST_CASE("RMSNorm's gradient agrees with float64") {
  for_each_case([](const Case& c) { check_norm_grad(c, false); });
}
TEST_CASE("LayerNorm's gradient agrees with float64") {
  for_each_case([](const Case& c) { check_norm_grad(c, true); });
}
TEST_CASE("norms of rows that no block of threads holds agree with float64") {
  for (const bool centred : {false, true})
    for (const Case& c :
         {Case{2, 16500, DType::f32, {}}, {3, 33000, DType::bf16, {}}, {2, 16500, DType::f32, {1, 1}}}) {
      check_norm(c, centred);
      check_norm_grad(c, centred);
    }
}
TEST_CASE("norms' gradients of several rows after each other, each of several warps") {
  for (const bool centred : {false, true}) check_norm_grad({99, 1030, DType::f32, {}}, centred);
}

TEST_CASE("RMSNorm's gradient is its slope") { check_norm_slope(false); }
TEST_CASE("LayerNorm's gradient is its slope") { check_norm_slope(true); }

TEST_CASE("a norm's sum may be x, and its gradient may be added to d_residual in place") {
  for (const bool centred : {false, true}) {
    const Case c{40, 65, DType::bf16, {}};
    Norm apart{c, centred}, in_place{c, centred};
    apart.forward(true);
    apart.backward(true);
    const Buffer& x = in_place.x;
    if (centred)
      run_op(
          LayerNorm{in_place.y, in_place.mean, in_place.rstd, x, in_place.weight, in_place.bias, in_place.residual, x});
    else run_op(RmsNorm{in_place.y, in_place.rstd, x, in_place.weight, in_place.residual, x});
    REQUIRE(in_place.y.values() == apart.y.values());
    REQUIRE(x.values() == apart.sum.values());
    const Buffer& d = in_place.d_residual;
    if (centred)
      run_op(
          LayerNormGrad{d, in_place.partials, in_place.d_y, apart.x, in_place.weight, in_place.mean, in_place.rstd, d});
    else run_op(RmsNormGrad{d, in_place.partials, in_place.d_y, apart.x, in_place.weight, in_place.rstd, d});
    REQUIRE(d.values() == apart.d_x.values());
  }
}

TEST_CASE("RMSNorm of groups normalises each head of a strided [N, G, D]") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Shape shape{37, 3, 20};
    const Spacing spacing{11, 1};
    const Buffer x = random_buffer(dtype, shape, 1, 2, spacing), weight = random_buffer(dtype, {20}, 2);
    const Buffer d_y = random_buffer(dtype, shape, 3, 1, spacing);
    Buffer y(dtype, shape, spacing), rstd(DType::f32, {37, 3}), d_x(dtype, shape, spacing),
        partials(DType::f32, {kNormPartials, 20});
    run_with_any_threads(RmsNorm{y, rstd, x, weight, {}, {}}, {&y, &rstd});
    run_with_any_threads(RmsNormGrad{d_x, partials, d_y, x, weight, rstd, {}}, {&d_x, &partials});
    const ReferenceNorm wanted = reference_norm(x.values(), weight.values(), {}, 1e-5, false);
    require_close(y, wanted.y, rounded_once(dtype, 2));
    require_close(rstd, wanted.rstd, {1e-5, 0});
    const ReferenceNormGrad grad = reference_norm_grad(wanted, weight.values(), d_y.values(), false);
    require_close(d_x, grad.d_x, rounded_once(dtype, 10));
    require_close(reference_column_sum(partials.values(), 20), grad.d_weight, {1e-5, 1e-4});
  }
}
