#include "core/ops/matmul.h"

#include "core/base/error.h"

namespace trainer {

void check_operands(const MatMul& op) {
  const auto is = [](const Tensor& t, int64_t rows, int64_t columns) {
    return t && t.shape.rank == 2 && t.shape[0] == rows && t.shape[1] == columns;
  };
  const int64_t m = op.m(), n = op.n(), k = op.k();
  check(k > 0 && (op.transpose_a ? is(op.a, k, m) : is(op.a, m, k)) &&
            (op.transpose_b ? is(op.b, n, k) : is(op.b, k, n)) && (!op.residual || is(op.residual, m, n)) &&
            (!op.bias || op.bias.elements() == n),
        Exit::device, "matmul: c [{}, {}] is not op(a [{}, {}]) op(b [{}, {}]) + bias [n] + residual [m, n]", m, n,
        op.a.shape[0], op.a.shape[1], op.b.shape[0], op.b.shape[1]);
  const auto known = [](const Tensor& t) { return t.dtype == DType::f32 || t.dtype == DType::bf16; };
  check(known(op.a) && known(op.c) && op.b.dtype == op.a.dtype && (!op.bias || op.bias.dtype == op.a.dtype) &&
            (!op.residual || op.residual.dtype == op.c.dtype),
        Exit::device, "matmul: a {}, b {}, c {}: wanted f32 or bf16, bias and b as a, residual as c",
        name_of(op.a.dtype), name_of(op.b.dtype), name_of(op.c.dtype));
  check(!op.accumulate || (!op.bias && !op.residual), Exit::device, "matmul: accumulate excludes bias and residual");
}

}  // namespace trainer
