// Online-softmax attention, forward and backward, beside the matmul roof of the same run. FLOPs are those the causal
// mask leaves.
#include <fmt/format.h>

#include <cmath>

#include "app/bench/bench.h"
#include "app/bench/op_runner.h"
#include "app/bench/roof.h"
#include "app/cores.h"

namespace trainer {
namespace {

struct Case {
  int64_t batch, seq_len, heads, kv_heads, head_dim;
};
constexpr Case kCases[] = {
    {4, 1024, 12, 12, 64}, {1, 4096, 12, 12, 64}, {1, 4096, 12, 4, 64}, {4, 1024, 6, 6, 128}, {12, 64, 4, 4, 32}};

}  // namespace

std::vector<BenchRow> bench_attention(const std::string& dtype) {
  const DType type = bench_dtype(dtype);
  std::vector<BenchRow> rows;
  OpRunner runner(available_cores(), size_t{400} << 20);
  const double roof = matmul_roof(runner, type);
  for (const Case& c : kCases) {
    runner.reset();
    const int64_t N = c.batch * c.seq_len, q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
    const Tensor qkv = runner.take(type, {N, q + 2 * kv}), d_qkv = runner.take_zero(type, {N, q + 2 * kv});
    const Tensor out = runner.take(type, {N, c.heads, c.head_dim}), d_out = runner.take(type, {N, c.heads, c.head_dim});
    const Tensor lse = runner.take_zero(DType::f32, {c.batch, c.heads, c.seq_len});
    const auto part = [&](const Tensor& t, int64_t begin, int64_t heads) {
      return column_part(t, begin, begin + heads * c.head_dim, heads);
    };
    const float scale = 1 / std::sqrt(float(c.head_dim));
    const Attention forward{.out = out,
                            .lse = lse,
                            .q = part(qkv, 0, c.heads),
                            .k = part(qkv, q, c.kv_heads),
                            .v = part(qkv, q + kv, c.kv_heads),
                            .mask = {},
                            .batch = c.batch,
                            .scale = scale};
    const AttentionGrad backward{.d_q = part(d_qkv, 0, c.heads),
                                 .d_k = part(d_qkv, q, c.kv_heads),
                                 .d_v = part(d_qkv, q + kv, c.kv_heads),
                                 .d_out = d_out,
                                 .out = out,
                                 .lse = lse,
                                 .q = forward.q,
                                 .k = forward.k,
                                 .v = forward.v,
                                 .mask = {},
                                 .batch = c.batch,
                                 .scale = scale};
    const std::string name = fmt::format("B={} T={} H={}/{} D={}", c.batch, c.seq_len, c.heads, c.kv_heads, c.head_dim);
    rows.push_back({name + " forward", forward.cost().flops / runner.best_seconds(forward) * 1e-9, "GFLOP/s", roof});
    rows.push_back({name + " backward", backward.cost().flops / runner.best_seconds(backward) * 1e-9, "GFLOP/s", roof});
  }
  return rows;
}

}  // namespace trainer
