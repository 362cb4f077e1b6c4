// Dense products at training shapes. The roof is the best plain product of the same run, whatever its shape.
#include <fmt/format.h>

#include "app/bench/bench.h"
#include "app/bench/op_runner.h"
#include "app/bench/roof.h"
#include "app/cores.h"

namespace trainer {
namespace {

struct Shape3 {
  const char* name;
  int64_t m, n, k;
};
// GPT-2 124M at B = 4, T = 1024: the products of a layer and of the head's chunk.
constexpr Shape3 kShapes[] = {{"qkv", 4096, 2304, 768},
                              {"proj", 4096, 768, 768},
                              {"fc", 4096, 3072, 768},
                              {"fc proj", 4096, 768, 3072},
                              {"head", 1024, 50304, 768}};

}  // namespace

std::vector<BenchRow> bench_matmul(const std::string& dtype) {
  const DType type = bench_dtype(dtype);
  OpRunner runner(available_cores(), size_t{1200} << 20);
  const double roof = matmul_roof(runner, type);
  std::vector<BenchRow> rows{{fmt::format("{} roof", dtype), roof, "GFLOP/s", roof}};
  for (const Shape3& s : kShapes) {
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
