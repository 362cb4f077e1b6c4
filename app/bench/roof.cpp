#include "app/bench/roof.h"

#include "core/base/error.h"

namespace trainer {

DType bench_dtype(const std::string& name) {
  check(name == "bf16" || name == "fp32", Exit::usage, "--dtype: wanted bf16 or fp32, found '{}'", name);
  return name == "bf16" ? DType::bf16 : DType::f32;
}

double matmul_roof(OpRunner& runner, DType dtype) {
  double best = 0;
  const Tensor a = runner.take(dtype, {4096, 3072}), b = runner.take(dtype, {3072, 3072}),
               c = runner.take(dtype, {4096, 3072});
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{3072, 768}, {768, 3072}, {3072, 3072}, {2048, 2048}}) {
    const MatMul op{.c = reshaped(flat_part(c, 0, 4096 * n), {4096, n}),
                    .a = reshaped(flat_part(a, 0, 4096 * k), {4096, k}),
                    .b = reshaped(flat_part(b, 0, n * k), {n, k}),
                    .bias = {},
                    .residual = {},
                    .transpose_b = true};
    best = std::max(best, op.cost().flops / runner.best_seconds(op, 7) * 1e-9);
  }
  return best;
}

}  // namespace trainer
