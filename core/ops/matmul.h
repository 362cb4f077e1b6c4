// Dense matrix products.
#pragma once
#include "core/ops/kernel.h"

namespace trainer {

// c = op(a) op(b) + bias + residual, or c += op(a) op(b).
//   a [M, K] ([K, M] where transpose_a), b [K, N] ([N, K] where transpose_b), c [M, N]; a and b of one dtype (f32 or bf16), c f32
//   or bf16. Rows may be strided. Products accumulate in f32 and are rounded once.
//   bias [N], of a's dtype, or empty. residual [M, N], of c's dtype, or empty; it may not overlap c.
// REQUIRES: bias and residual are empty where accumulate is set.
struct MatMul {
  static constexpr const char* kName = "matmul";
  Tensor c, a, b, bias, residual;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  int64_t m() const { return c.shape[0]; }
  int64_t n() const { return c.shape[1]; }
  int64_t k() const { return a.shape[transpose_a ? 0 : 1]; }
  Cost cost() const {
    const double c_passes = accumulate ? 2 : 1;
    return {2.0 * double(m()) * double(n()) * double(k()),
            double(a.bytes() + b.bytes() + bias.bytes() * (bias ? 1 : 0) + (residual ? residual.bytes() : 0)) +
                c_passes * double(c.bytes())};
  }
};

// Throws Error(device) where shapes and dtypes do not belong together, or K is 0.
void check_operands(const MatMul&);

}  // namespace trainer
