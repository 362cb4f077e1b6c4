#include "tests/rows/cases.h"
#include "tests/support/gradient_check.h"
#include "tests/support/reference.h"

using namespace trainer;
using namespace trainer::test;

namespace {

double silu(double x) { return x * reference_sigmoid(x); }
double silu_slope(double x) {
  const double s = reference_sigmoid(x);
  return s + x * s * (1 - s);
}

// [N, 2F] from gate [N, F] and up [N, F], and back.
Values beside(const Values& gate, const Values& up, size_t columns) {
  Values both(2 * gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    both[i / columns * 2 * columns + i % columns] = gate[i];
    both[i / columns * 2 * columns + columns + i % columns] = up[i];
  }
  return both;
}
std::pair<Values, Values> halves(const Values& both, size_t columns) {
  std::pair<Values, Values> result;
  for (size_t i = 0; i < both.size(); ++i) (i / columns % 2 ? result.second : result.first).push_back(both[i]);
  return result;
}

}  // namespace

TEST_CASE("gelu and its gradient agree with float64") {
  for_each_case([](const Case& c) {
    const Buffer x = random_buffer(c, 1, 6), d_y = random_buffer(c, 2);
    Buffer y = empty_buffer(c), d_x = empty_buffer(c);
    run_with_any_threads(Gelu{y, x}, {&y});
    run_with_any_threads(GeluGrad{d_x, d_y, x}, {&d_x});
    require_close(y, map(reference_gelu, x.values()), rounded_once(c.dtype));
    require_close(d_x, map([](double d, double v) { return d * reference_gelu_slope(v); }, d_y.values(), x.values()),
                  rounded_once(c.dtype, 2));
  });
}

TEST_CASE("gelu's gradient may be written over d_y") {
  const Buffer x = random_buffer(DType::bf16, {40, 33}, 1), d_y = random_buffer(DType::bf16, {40, 33}, 2);
  Buffer apart(DType::bf16, {40, 33}), in_place(DType::bf16, {40, 33}, d_y.values());
  run_op(GeluGrad{apart, d_y, x});
  run_op(GeluGrad{in_place, in_place, x});
  REQUIRE(apart.values() == in_place.values());
}

TEST_CASE("gelu far from zero is x or nothing, and NaN stays NaN") {
  const Buffer x(DType::f32, {6}, {1e4, -1e4, 1e30, 40, -40, NAN});
  Buffer y(DType::f32, {6}), d_x(DType::f32, {6});
  const Buffer ones(DType::f32, {6}, Values(6, 1.0));
  run_op(Gelu{y, x});
  run_op(GeluGrad{d_x, ones, x});
  const Values v = y.values(), d = d_x.values();
  require_close(Values(v.begin(), v.begin() + 5), {1e4, 0, 1e30, 40, 0}, {1e-6, 1e-30});
  REQUIRE(std::isnan(v[5]));
  require_close(Values(d.begin(), d.begin() + 5), {1, 0, 1, 1, 0}, {1e-6, 1e-20});
  REQUIRE(std::isnan(d[5]));
}

TEST_CASE("gelu's gradient is the slope of gelu") {
  const Shape shape{3, 17};
  const Buffer x = random_buffer(DType::f32, shape, 3, 3), d_y = random_buffer(DType::f32, shape, 4);
  Buffer d_x(DType::f32, shape);
  run_op(GeluGrad{d_x, d_y, x});
  const auto loss = [&](const Values& v) {
    Buffer y(DType::f32, shape);
    run_op(Gelu{y, Buffer(DType::f32, shape, v)}, 1);
    return dot(y.values(), d_y.values());
  };
  require_close(d_x, central_difference(loss, x.values()), {2e-3, 2e-3});
}

TEST_CASE("swiglu and its gradient agree with float64") {
  for_each_case([](const Case& c) {
    const size_t columns = size_t(c.columns);
    const Shape wide{c.rows, 2 * c.columns};
    const Buffer gate_up = random_buffer(c.dtype, wide, 1, 4, c.spacing), d_y = random_buffer(c, 2);
    Buffer y = empty_buffer(c), d_gate_up(c.dtype, wide, c.spacing);
    run_with_any_threads(SwiGlu{y, gate_up}, {&y});
    run_with_any_threads(SwiGluGrad{d_gate_up, d_y, gate_up}, {&d_gate_up});
    const auto [gate, up] = halves(gate_up.values(), columns);
    require_close(y, map([](double g, double u) { return silu(g) * u; }, gate, up), rounded_once(c.dtype, 4));
    const Values d_gate =
        map([](double d, double g, double u) { return d * u * silu_slope(g); }, d_y.values(), gate, up);
    const Values d_up = map([](double d, double g) { return d * silu(g); }, d_y.values(), gate);
    require_close(d_gate_up, beside(d_gate, d_up, columns), rounded_once(c.dtype, 4));
    Buffer in_place(c.dtype, wide, gate_up.values(), c.spacing);
    run_op(SwiGluGrad{in_place, d_y, in_place});
    REQUIRE(in_place.values() == d_gate_up.values());
  });
}

TEST_CASE("swiglu's gradient is its slope") {
  const Shape wide{3, 2 * 11}, narrow{3, 11};
  const Buffer gate_up = random_buffer(DType::f32, wide, 5, 2), d_y = random_buffer(DType::f32, narrow, 6);
  Buffer d_gate_up(DType::f32, wide);
  run_op(SwiGluGrad{d_gate_up, d_y, gate_up});
  const auto loss = [&](const Values& v) {
    Buffer y(DType::f32, narrow);
    run_op(SwiGlu{y, Buffer(DType::f32, wide, v)}, 1);
    return dot(y.values(), d_y.values());
  };
  require_close(d_gate_up, central_difference(loss, gate_up.values()), {2e-3, 2e-3});
}

TEST_CASE("tensors of two dtypes are refused with a sentence") {
  const Buffer x(DType::f32, {4}, Values(4, 1.0));
  Buffer y(DType::bf16, {4});
  REQUIRE_THROWS_WITH(run_op(Gelu{y, x}), "gelu: wanted tensors of one dtype, found f32 beside bf16");
}
