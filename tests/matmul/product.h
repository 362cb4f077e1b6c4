// A product with its factors in buffers of their own, and what it must be in float64.
#pragma once
#include "core/ops/matmul.h"
#include "tests/support/buffer.h"

namespace trainer::test {

struct ProductCase {
  int64_t m, n, k;
  DType in = DType::f32, out = DType::f32;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false, residual = false;
  Spacing spacing = {};  // of every matrix
};

class ProductData {
 public:
  explicit ProductData(const ProductCase& p)
      : a(random_buffer(p.in, p.transpose_a ? Shape{p.k, p.m} : Shape{p.m, p.k}, 1, 1, p.spacing)),
        b(random_buffer(p.in, p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n}, 2, 1, p.spacing)),
        c(random_buffer(p.out, {p.m, p.n}, 3, 1, p.spacing)) {
    if (p.bias) bias = random_buffer(p.in, {p.n}, 4);
    if (p.residual) residual = random_buffer(p.out, {p.m, p.n}, 5, 1, p.spacing);
    op.c = c;
    op.a = a;
    op.b = b;
    op.bias = bias;
    op.residual = residual;
    op.transpose_a = p.transpose_a;
    op.transpose_b = p.transpose_b;
    op.accumulate = p.accumulate;
  }

  // From what c holds now.
  Values wanted() const {
    const auto held = [](const Buffer& t) { return t.tensor() ? t.values() : Values(); };
    const Values va = a.values(), vb = b.values(), vc = c.values(), vbias = held(bias), vresidual = held(residual);
    const int64_t m = op.m(), n = op.n(), k = op.k();
    Values w(size_t(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const size_t at = size_t(i * n + j);
        double sum = op.accumulate ? vc[at] : 0;
        if (op.bias) sum += vbias[size_t(j)];
        if (op.residual) sum += vresidual[at];
        for (int64_t d = 0; d < k; ++d)
          sum +=
              va[size_t(op.transpose_a ? d * m + i : i * k + d)] * vb[size_t(op.transpose_b ? j * k + d : d * n + j)];
        w[at] = sum;
      }
    return w;
  }

  Buffer a, b, c, bias, residual;
  MatMul op;
};

}  // namespace trainer::test
