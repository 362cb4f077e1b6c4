// Dense products at training shapes. The roof is the best plain product of the same run, whatever its shape.
#include <fmt/format.h>

#include "app/bench/bench.h"
#include "app/bench/bench_device.h"
#include "app/bench/roof.h"

namespace trainer {
namespace {

struct Shape3 {
  const char* name;
  int64_t m, n, k;
};
std::vector<Shape3> shapes_of(const MatmulBenchOptions& o) {
  return {{"qkv", o.rows, o.qkv > 0 ? o.qkv : 3 * o.hidden, o.hidden},
          {"proj", o.rows, o.hidden, o.hidden},
          {"fc", o.rows, o.ffn, o.hidden},
          {"fc proj", o.rows, o.hidden, o.ffn},
          {"head", (o.rows + 3) / 4, o.vocab, o.hidden}};
}

}  // namespace

std::vector<BenchRow> bench_matmul(const MatmulBenchOptions& o) {
  const RunSpec spec = bench_spec(o.device, o.dtype);
  choose_device(spec);
  const DType type = bench_dtype(spec);
  const int64_t size = roof_size(spec.device, o.roof_size);
  size_t most = roof_bytes(size, type);
  for (const Shape3& s : shapes_of(o))
    most = std::max(most, size_t(s.m * s.k + s.n * s.k + s.m * s.n) * size_of(type) + size_t(s.n * s.k) * 4 + 1024);
  OpRunner runner(spec.device, most);
  const double roof = matmul_roof(runner, type, size);
  std::vector<BenchRow> rows{{fmt::format("{} roof", o.dtype), roof, "GFLOP/s", roof}};
  for (const Shape3& s : shapes_of(o)) {
    runner.reset();
    const Tensor x = runner.take(type, {s.m, s.k}), w = runner.take(type, {s.n, s.k}),
                 y = runner.take(type, {s.m, s.n}), dw = runner.take_zero(DType::f32, {s.n, s.k});
    const auto row = [&](const char* what, const MatMul& op) {
      rows.push_back({fmt::format("{} {} [{}, {}, {}]", s.name, what, op.m(), op.n(), op.k()),
                      op.cost().flops / runner.best_seconds(op) * 1e-9, "GFLOP/s", roof});
    };
    row("forward", MatMul{.c = y, .a = x, .b = w, .bias = {}, .residual = {}, .transpose_b = true});
    row("input gradient", MatMul{.c = x, .a = y, .b = w, .bias = {}, .residual = {}});
    row("weight gradient", MatMul{.c = dw, .a = y, .b = x, .bias = {}, .residual = {}, .transpose_a = true});
  }
  return rows;
}

}  // namespace trainer
