// Products over odd shapes, layouts, dtypes and epilogues against float64, on the device's kernels.
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "run_op.h"
#include "tests/matmul/product.h"
#include "tests/support/compare.h"

using namespace trainer;
using namespace trainer::test;

namespace {

void check_product(const ProductCase& p) {
  CAPTURE(p.m, p.n, p.k, name_of(p.in), name_of(p.out), p.transpose_a, p.transpose_b, p.accumulate, p.bias, p.residual);
  const ProductData data(p);
  const Values wanted = data.wanted();
  run_op(data.op);
  require_close(data.c, wanted, rounded_once(p.out, std::sqrt(double(p.k)) + 1));
}

struct Types {
  DType in, out;
};
constexpr Types kTypes[] = {
    {DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}, {DType::f32, DType::bf16}};

struct Sizes {
  int64_t m, n, k;
};
constexpr Sizes kOddSizes[] = {{1, 1, 1},     {1, 65, 3},   {3, 1, 130},   {3, 17, 63},  {17, 3, 1},    {17, 63, 17},
                               {63, 130, 65}, {65, 16, 64}, {130, 65, 63}, {130, 1, 17}, {1, 130, 130}, {96, 32, 256}};

}  // namespace

TEST_CASE("products of odd shapes, with every transpose and dtype") {
  for (const Types t : kTypes)
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        for (const Sizes s : kOddSizes) check_product({s.m, s.n, s.k, t.in, t.out, ta, tb});
}

TEST_CASE("products larger than every block: columns, depth and rows with tails") {
  for (const Types t : kTypes) {
    check_product({1001, 35, 261, t.in, t.out, false, true});
    check_product({5, 1601, 67, t.in, t.out, false, true});
    check_product({9, 33, 4099, t.in, t.out, true, false});
    check_product({3, 801, 2085, t.in, t.out, false, false, true});
    check_product({3, 801, 2085, t.in, t.out, true, true, false, true, true});
  }
}

TEST_CASE("a is packed by tasks where it is large: bf16, and f32 for many columns") {
  for (const Types t : kTypes) check_product({2003, 17, 270, t.in, t.out, false, false, false, true, true});
  check_product({2003, 17, 270, DType::bf16, DType::f32, true, false, true});
  check_product({1030, 514, 513, DType::f32, DType::f32, false, true, false, true, true});
}

TEST_CASE("bias, residual, both, or what c held is added, and rounded once") {
  for (const Types t : kTypes)
    for (int epilogue = 0; epilogue < 5; ++epilogue)
      for (int64_t m : {1, 7, 65}) {
        ProductCase p{m, 37, 19, t.in, t.out, false, true};
        p.accumulate = epilogue == 4;
        p.bias = epilogue == 1 || epilogue == 3;
        p.residual = epilogue == 2 || epilogue == 3;
        check_product(p);
      }
}

TEST_CASE("rows may be strided and unaligned; nothing beside them is written") {
  for (const Types t : kTypes)
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        check_product({66, 35, 37, t.in, t.out, ta, tb, false, true, true, {.gap = 5, .shift = 3}});
}

TEST_CASE("a product has the same bits with any number of threads") {
  for (const Types t : kTypes) {
    ProductData data({203, 131, 300, t.in, t.out, false, true, false, true});
    run_with_any_threads(data.op, {&data.c});
  }
}

TEST_CASE("a NaN or infinity stays in its row") {
  for (DType in : {DType::f32, DType::bf16}) {
    const ProductData data({19, 35, 23, in, in, false, true});
    Values a = data.a.values();
    a[5 * 23 + 7] = NAN;
    a[18 * 23] = INFINITY;
    Buffer odd(in, {19, 23}, a);
    MatMul op = data.op;
    op.a = odd;
    run_op(op);
    const Values c = data.c.values();
    for (int64_t i = 0; i < 19; ++i)
      for (int64_t j = 0; j < 35; ++j) REQUIRE(std::isfinite(c[size_t(i * 35 + j)]) == (i != 5 && i != 18));
  }
}

TEST_CASE("shapes and dtypes that do not belong together are refused") {
  const ProductData data({4, 5, 6});
  MatMul op = data.op;
  op.transpose_b = true;
  REQUIRE_THROWS_AS(run_op(op), Error);
  op = data.op;
  op.a.dtype = DType::bf16;
  REQUIRE_THROWS_AS(run_op(op), Error);
  op = data.op;
  op.accumulate = true;
  op.residual = data.c;
  REQUIRE_THROWS_AS(run_op(op), Error);
}
