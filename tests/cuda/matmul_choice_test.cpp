// Which products cuBLASLt computes, and that those it does not take are right as well.
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "run_op.h"
#include "tests/cuda/matmul_settings.h"
#include "tests/fakecuda/fake_cuda.h"
#include "tests/matmul/product.h"
#include "tests/support/compare.h"

using namespace trainer;
using namespace trainer::test;
using cuda::matmul_path;
using cuda::MatmulPath;

namespace {

struct Ran {
  uint64_t gemms, kernels;
  bool operator==(const Ran&) const = default;
};
Ran ran(const MatMul& op) {
  const fake::Counters before = fake::counters;
  run_op(op);
  return {fake::counters.gemms - before.gemms, fake::counters.kernels - before.kernels};
}
void require_right(const ProductCase& p) {
  CAPTURE(p.m, p.n, p.k, name_of(p.in), name_of(p.out), p.transpose_a, p.transpose_b, p.accumulate, p.bias, p.residual);
  const ProductData data(p);
  const Values wanted = data.wanted();
  run_op(data.op);
  require_close(data.c, wanted, rounded_once(p.out, std::sqrt(double(p.k)) + 1));
}

}  // namespace

TEST_CASE("the path follows from dtypes, sizes and the bias's alignment, and is the path that is run") {
  const struct {
    ProductCase product;
    MatmulPath path;
  } cases[] = {
      {{17, 24, 32, DType::bf16, DType::bf16}, MatmulPath::cublaslt},
      {{17, 24, 32, DType::bf16, DType::f32}, MatmulPath::cublaslt},
      {{17, 24, 32, DType::f32, DType::f32}, MatmulPath::cublaslt},
      {{17, 24, 32, DType::f32, DType::bf16}, MatmulPath::plain},
      {{17, 25, 33, DType::bf16, DType::bf16, false, true, false, false, true, {.gap = 5, .shift = 3}},
       MatmulPath::cublaslt},
      {{17, 24, 32, DType::bf16, DType::bf16, false, false, false, true}, MatmulPath::cublaslt},
      {{17, 24, 32, DType::f32, DType::f32, false, false, false, true}, MatmulPath::cublaslt},
      {{17, 24, 32, DType::bf16, DType::f32, false, false, false, true}, MatmulPath::plain},
  };
  for (const auto& c : cases) {
    const ProductData data(c.product);
    CAPTURE(name_of(c.product.in), name_of(c.product.out), c.product.bias);
    REQUIRE(matmul_path(data.op) == c.path);
    REQUIRE(ran(data.op) == (c.path == MatmulPath::cublaslt ? Ran{1, 0} : Ran{0, 1}));
  }
}

TEST_CASE("a bias off 16 bytes and sizes beyond 32 bits are for the plain kernel") {
  const ProductData data({4, 8, 8, DType::bf16, DType::bf16, false, false, false, true});
  MatMul op = data.op;
  op.bias.data += 2;
  REQUIRE(matmul_path(op) == MatmulPath::plain);
  op = data.op;
  op.a.row_stride = int64_t(1) << 31;
  REQUIRE(matmul_path(op) == MatmulPath::plain);
}

TEST_CASE("where cuBLASLt suggests no algorithm the plain kernel computes the product") {
  const MatmulSettings settings;
  fake::cublaslt_settings().suggested = 0;
  const ProductData data({17, 24, 32, DType::bf16, DType::bf16});
  REQUIRE(ran(data.op) == Ran{0, 1});
  for (DType in : {DType::f32, DType::bf16})
    for (DType out : {DType::f32, DType::bf16})
      for (bool ta : {false, true})
        for (bool tb : {false, true}) {
          require_right({1, 1, 1, in, out, ta, tb});
          require_right({63, 65, 17, in, out, ta, tb, true});
          require_right({65, 130, 33, in, out, ta, tb, false, true, true, {.gap = 5, .shift = 3}});
        }
}

TEST_CASE("plain products have the same bits under every order of threads") {
  const MatmulSettings settings;
  fake::cublaslt_settings().suggested = 0;
  ProductData data({70, 67, 50, DType::bf16, DType::f32, true, false, true});
  run_with_any_threads(data.op, {&data.c});
}

TEST_CASE("TF32 only where the policy says so, and only of f32") {
  const MatmulSettings settings;
  const ProductCase f32{33, 40, 64}, bf16{33, 40, 64, DType::bf16, DType::bf16};
  const auto values = [](const ProductCase& p) {
    const ProductData data(p);
    run_op(data.op);
    return data.c.values();
  };
  const Values exact = values(f32), narrow = values(bf16);
  cuda::set_matmul_policy({.tf32 = true});
  const Values tf32 = values(f32);
  REQUIRE(tf32 != exact);
  require_close(tf32, exact, {1e-3, 1e-2});
  REQUIRE(values(bf16) == narrow);
  REQUIRE(ran(ProductData(bf16).op) == Ran{1, 0});
}

TEST_CASE("scratch is a function of sizes and dtypes, and too little of it is refused") {
  const ProductData data({17, 24, 32, DType::bf16, DType::bf16});
  REQUIRE(cuda::scratch_bytes(data.op) == (512 << 10) + 256);
  REQUIRE(cuda::matmul_workspace(768, 50257) == 32 << 20);
  MatMul unaligned = data.op;
  unaligned.a.data += 2;
  REQUIRE(cuda::scratch_bytes(unaligned) == cuda::scratch_bytes(data.op));
  REQUIRE(cuda::scratch_bytes(ProductData({1, 1, 1, DType::f32, DType::bf16}).op) == 0);
  OneStream stream(cuda::matmul_workspace(17, 24) - 1);
  REQUIRE_THROWS_WITH(cuda::run(stream, data.op), Catch::Contains("bytes of scratch, found"));
}

TEST_CASE("a product without rows or columns launches nothing") {
  const ProductData data({5, 6, 7});
  MatMul op = data.op;
  op.a = row_part(op.a, 0, 0);
  op.c = row_part(op.c, 0, 0);
  REQUIRE(ran(op) == Ran{0, 0});
}
