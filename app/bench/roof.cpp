#include "app/bench/roof.h"

#include "app/wire.h"
#include "core/base/error.h"

namespace trainer {

DType bench_dtype(const RunSpec& spec) { return spec.precision.compute == Precision::bf16 ? DType::bf16 : DType::f32; }

int64_t roof_size(const DeviceSpec& spec, int64_t wanted) {
  check(wanted >= 0 && wanted % 48 == 0, Exit::usage, "--roof-size: wanted a multiple of 48, found {}", wanted);
  if (wanted > 0) return wanted;
  return device_kind(spec) == DeviceKind::cuda ? 12288 : 3072;
}

size_t roof_bytes(int64_t size, DType dtype) { return size_t(size * size / 3 * 11) * size_of(dtype) + 1024; }

double matmul_roof(OpRunner& runner, DType dtype, int64_t size) {
  double best = 0;
  const int64_t m = size / 3 * 4;
  const Tensor a = runner.take(dtype, {m, size}), b = runner.take(dtype, {size, size}),
               c = runner.take(dtype, {m, size});
  for (const auto& [n, k] : {std::pair{size, size / 4}, {size / 4, size}, {size, size}, {size / 3 * 2, size / 3 * 2}}) {
    const MatMul op{.c = reshaped(flat_part(c, 0, m * n), {m, n}),
                    .a = reshaped(flat_part(a, 0, m * k), {m, k}),
                    .b = reshaped(flat_part(b, 0, n * k), {n, k}),
                    .bias = {},
                    .residual = {},
                    .transpose_b = true};
    best = std::max(best, op.cost().flops / runner.best_seconds(op, 7) * 1e-9);
  }
  return best;
}

double copy_roof(OpRunner& runner, DType dtype, int64_t size) {
  const int64_t m = size / 3 * 4;
  const Copy op{runner.take_zero(dtype, {m * size}), runner.take_zero(dtype, {m * size})};
  return op.cost().bytes / runner.best_seconds(op, 7) * 1e-9;
}

}  // namespace trainer
