// What the CPU's products promise beside their contract.
#include "core/ops/matmul.h"
#include "run_op.h"
#include "tests/matmul/product.h"

using namespace trainer;
using namespace trainer::test;

TEST_CASE("a product has the same bits computed a slice of rows at a time") {
  for (DType in : {DType::f32, DType::bf16})
    for (DType out : {DType::f32, DType::bf16}) {
      const ProductCase p{203, 131, 300, in, out, false, true, false, true};
      const ProductData one(p), sliced(p);
      run_op(one.op);
      for (int64_t row = 0; row < p.m; row += 50) {
        MatMul part = sliced.op;
        part.c = row_part(sliced.op.c, row, std::min(p.m, row + 50));
        part.a = row_part(sliced.op.a, row, std::min(p.m, row + 50));
        run_op(part);
      }
      REQUIRE(sliced.c.bytes() == one.c.bytes());
    }
}
