#include <limits>

#include "tests/rows/cases.h"
#include "tests/support/reference.h"

using namespace trainer;
using namespace trainer::test;

TEST_CASE("copy moves and converts every element, rounding to nearest even") {
  for_each_pair([](const Case& to, const Case& from) {
    const Buffer x = random_buffer(from, 1, 100);
    Buffer y = empty_buffer(to);
    run_with_any_threads(Copy{y, x}, {&y});
    require_close(y, map([&](double v) { return round_to(to.dtype, v); }, x.values()), {0, 0});
  });
}

TEST_CASE("copy moves integers, and a dense matrix into a vector") {
  const Buffer from(DType::i32, {3, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -2147483648.0});
  Buffer to(DType::i32, {15});
  run_op(Copy{to, from});
  REQUIRE(to.values() == from.values());
}

TEST_CASE("conversion to bf16 keeps NaN, infinities and ties as the scalar one does") {
  Values specials{NAN, INFINITY, -INFINITY, 0.0, -0.0, 3.4e38, 1e-40};
  for (const uint32_t bits :
       {0x7fffffffu, 0xffffffffu, 0x7f800001u, 0x3f808000u, 0x3f818000u, 0x3f808001u, 0x7f7fffffu})
    specials.push_back(double(std::bit_cast<float>(bits)));
  const int64_t n = int64_t(specials.size());
  const Buffer x(DType::f32, {n}, specials);
  Buffer y(DType::bf16, {n});
  run_op(Copy{y, x});
  for (int64_t i = 0; i < n; ++i) {
    INFO("value " << i);
    const auto found = data_as<const bf16>(y.tensor())[i], wanted = to_bf16(data_as<const float>(x.tensor())[i]);
    if (std::isnan(to_float(wanted))) REQUIRE(std::isnan(to_float(found)));
    else REQUIRE(found.bits == wanted.bits);
  }
}

TEST_CASE("add sums in f32 and rounds once") {
  for_each_pair([](const Case& to, const Case& from) {
    const Buffer x = random_buffer(from, 1), start = random_buffer(to, 2);
    Buffer y = random_buffer(to, 2);
    run_with_any_threads(Add{y, x}, {&y});
    require_close(y,
                  map([&](double a, double b) { return round_to(to.dtype, double(float(a) + float(b))); },
                      start.values(), x.values()),
                  {0, 0});
  });
}

TEST_CASE("scale and zero") {
  for_each_case([](const Case& c) {
    const Buffer start = random_buffer(c, 1);
    Buffer x = random_buffer(c, 1);
    run_with_any_threads(Scale{x, 0.3f}, {&x});
    require_close(x, map([&](double v) { return round_to(c.dtype, double(float(v) * 0.3f)); }, start.values()), {0, 0});
    run_with_any_threads(Zero{x}, {&x});
    require_close(x, Values(size_t(x.elements())), {0, 0});
  });
}

TEST_CASE("zero clears integers and f64") {
  for (const DType dtype : {DType::i32, DType::i64, DType::f64}) {
    Buffer x(dtype, {2, 3}, Values(6, 7.0), {2, 1});
    run_op(Zero{x});
    require_close(x, Values(6), {0, 0});
  }
}

TEST_CASE("column sums agree with float64, for few rows and many, over or onto what is there") {
  for_each_pair([](const Case& to, const Case& c) {
    const Buffer x = random_buffer(c, 1);
    for (const bool accumulate : {false, true}) {
      Buffer sum = random_buffer(to.dtype, {c.columns}, 2);
      Values wanted = reference_column_sum(x.values(), size_t(c.columns));
      if (accumulate) wanted = map([](double a, double b) { return a + b; }, wanted, sum.values());
      run_with_any_threads(ColumnSum{sum, x, accumulate}, {&sum});
      require_close(sum, wanted, to.dtype == DType::f32 ? Tolerance{1e-5, 2e-5} : Tolerance{kRoundedOnce, 2e-5});
    }
  });
}
