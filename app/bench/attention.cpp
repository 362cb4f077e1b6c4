// Online-softmax attention, forward and backward, beside the matmul roof of the same run. FLOPs are those the causal
// mask leaves.
#include <fmt/format.h>

#include <cmath>

#include "app/bench/bench.h"
#include "app/bench/bench_device.h"
#include "app/bench/roof.h"
#include "app/wire.h"
#include "core/base/error.h"

namespace trainer {
namespace {

struct Case {
  int64_t batch, seq_len, heads, kv_heads, head_dim;
};
constexpr Case kOnCpu[] = {
    {4, 1024, 12, 12, 64}, {1, 4096, 12, 12, 64}, {1, 4096, 12, 4, 64}, {4, 1024, 6, 6, 128}, {12, 64, 4, 4, 32}};
// GPT-2 124M, 1.3B, Llama 3 8B.
constexpr Case kOnGpu[] = {{32, 1024, 12, 12, 64}, {8, 2048, 16, 16, 128}, {2, 8192, 32, 8, 128}};

std::vector<Case> cases_of(const AttentionBenchOptions& o, DeviceKind kind) {
  if (o.batch > 0) return {{o.batch, o.seq_len, o.heads, o.kv_heads > 0 ? o.kv_heads : o.heads, o.head_dim}};
  if (kind == DeviceKind::cuda) return {std::begin(kOnGpu), std::end(kOnGpu)};
  return {std::begin(kOnCpu), std::end(kOnCpu)};
}

// Of q, k and v and their gradients, the output and its gradient, and the sums.
size_t bytes_of(const Case& c, DType type) {
  const int64_t N = c.batch * c.seq_len, q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  return size_t(N * (2 * (q + 2 * kv) + 2 * q)) * size_of(type) + size_t(N * c.heads) * 4 + 1024;
}

}  // namespace

std::vector<BenchRow> bench_attention(const AttentionBenchOptions& o) {
  RunSpec spec = bench_spec(o.device, o.dtype);
  spec.model.head_dim = o.head_dim;
  choose_device(spec);
  const DType type = bench_dtype(spec);
  const int64_t size = roof_size(spec.device, o.roof_size);
  const std::vector<Case> cases = cases_of(o, device_kind(spec.device));
  size_t most = roof_bytes(size, type);
  for (const Case& c : cases) {
    check(c.kv_heads > 0 && c.heads % c.kv_heads == 0, Exit::usage, "--kv-heads: wanted a divisor of {}, found {}",
          c.heads, c.kv_heads);
    most = std::max(most, bytes_of(c, type));
  }
  OpRunner runner(spec.device, most);
  const double roof = matmul_roof(runner, type, size);
  std::vector<BenchRow> rows;
  for (const Case& c : cases) {
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
