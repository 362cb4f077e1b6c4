// Causal attention in float64, row by row, straight from the definition; and the operands of a test case.
#pragma once
#include <cmath>
#include <vector>

#include "core/ops/attention.h"
#include "tests/support/buffer.h"

namespace trainer::test {

struct AttentionCase {
  int64_t batch = 1, length = 1, heads = 1, kv_heads = 1, width = 32, window = 0;
  DType dtype = DType::f32;
  int documents = 0;  // > 0: ids of so many documents, in runs that are not sorted
  int64_t gap = 0;    // elements between rows beyond the fused q, k and v
  int64_t rows() const { return batch * length; }
  int64_t fused() const { return (heads + 2 * kv_heads) * width; }
  float scale() const { return 1 / std::sqrt(float(width)); }
};

struct AttentionValues {
  Values q, k, v, out, lse, d_out, d_q, d_k, d_v;
  std::vector<int32_t> segments;
};

// Pieces of 1 to 40 rows, each of some document; a document may come back.
inline std::vector<int32_t> random_segments(const AttentionCase& c, uint32_t seed) {
  std::minstd_rand engine(seed + 7);
  std::vector<int32_t> ids;
  while (int64_t(ids.size()) < c.rows()) {
    const int32_t id = int32_t(engine() % uint32_t(c.documents)) * 5 - 3;
    ids.insert(ids.end(), 1 + engine() % 40, id);
  }
  ids.resize(size_t(c.rows()));
  return ids;
}

class AttentionReference {
 public:
  AttentionReference(const AttentionCase& c, AttentionValues& values) : c_(c), x_(values) {}

  // out and lse from q, k, v.
  void forward() {
    x_.out.assign(size_t(c_.rows() * c_.heads * c_.width), 0);
    x_.lse.assign(size_t(c_.rows() * c_.heads), 0);
    for_rows([&](int64_t b, int64_t h, int64_t t) {
      const std::vector<double> s = scores(b, h, t);
      double top = -INFINITY, sum = 0;
      for (double x : s) top = std::max(top, x);
      for (double x : s) sum += std::exp(x - top);
      x_.lse[size_t((b * c_.heads + h) * c_.length + t)] = (top + std::log(sum)) / std::log(2.0);
      double* out = &x_.out[q_at(b, t, h)];
      for (int64_t j = 0; j <= t; ++j)
        for (int64_t d = 0; d < c_.width; ++d)
          out[d] += std::exp(s[size_t(j)] - top) / sum * x_.v[k_at(b, j, h) + size_t(d)];
    });
  }
  // The gradients, from d_out and what forward left (or was rounded to since).
  void backward() {
    x_.d_q.assign(x_.q.size(), 0);
    x_.d_k.assign(x_.k.size(), 0);
    x_.d_v.assign(x_.v.size(), 0);
    for_rows([&](int64_t b, int64_t h, int64_t t) {
      const std::vector<double> s = scores(b, h, t);
      const double lse = x_.lse[size_t((b * c_.heads + h) * c_.length + t)] * std::log(2.0);
      const size_t q = q_at(b, t, h), n = size_t(c_.width);
      double delta = 0;
      for (size_t d = 0; d < n; ++d) delta += x_.out[q + d] * x_.d_out[q + d];
      for (int64_t j = 0; j <= t; ++j) {
        const size_t k = k_at(b, j, h);
        const double p = std::exp(s[size_t(j)] - lse);
        double d_p = 0;
        for (size_t d = 0; d < n; ++d) d_p += x_.d_out[q + d] * x_.v[k + d];
        const double d_s = p * (d_p - delta) * c_.scale();
        for (size_t d = 0; d < n; ++d) {
          x_.d_v[k + d] += p * x_.d_out[q + d];
          x_.d_q[q + d] += d_s * x_.k[k + d];
          x_.d_k[k + d] += d_s * x_.q[q + d];
        }
      }
    });
  }

 private:
  template <class F>
  void for_rows(F f) const {
    for (int64_t b = 0; b < c_.batch; ++b)
      for (int64_t h = 0; h < c_.heads; ++h)
        for (int64_t t = 0; t < c_.length; ++t) f(b, h, t);
  }
  size_t q_at(int64_t b, int64_t t, int64_t h) const { return size_t(((b * c_.length + t) * c_.heads + h) * c_.width); }
  size_t k_at(int64_t b, int64_t t, int64_t h) const {
    return size_t(((b * c_.length + t) * c_.kv_heads + h / (c_.heads / c_.kv_heads)) * c_.width);
  }
  // Scaled, of keys [0, t]; -infinity where hidden.
  std::vector<double> scores(int64_t b, int64_t h, int64_t t) const {
    std::vector<double> s(size_t(t + 1), -INFINITY);
    for (int64_t j = 0; j <= t; ++j) {
      if (c_.window > 0 && t - j >= c_.window) continue;
      if (c_.documents && x_.segments[size_t(b * c_.length + t)] != x_.segments[size_t(b * c_.length + j)]) continue;
      double sum = 0;
      for (int64_t d = 0; d < c_.width; ++d) sum += x_.q[q_at(b, t, h) + size_t(d)] * x_.k[k_at(b, j, h) + size_t(d)];
      s[size_t(j)] = sum * c_.scale();
    }
    return s;
  }

  const AttentionCase& c_;
  AttentionValues& x_;
};

// Everything a case needs, rounded to its dtype.
inline AttentionValues reference_values(const AttentionCase& c, uint32_t seed = 1, double scale = 1.5) {
  AttentionValues x;
  const auto random = [&](int64_t n, uint32_t s) {
    Values v = random_values(n, seed * 10 + s, scale);
    for (double& value : v) value = round_to(c.dtype, value);
    return v;
  };
  x.q = random(c.rows() * c.heads * c.width, 1);
  x.k = random(c.rows() * c.kv_heads * c.width, 2);
  x.v = random(c.rows() * c.kv_heads * c.width, 3);
  x.d_out = random(c.rows() * c.heads * c.width, 4);
  if (c.documents) x.segments = random_segments(c, seed);
  AttentionReference reference(c, x);
  reference.forward();
  const Values exact = x.out;
  for (double& value : x.out) value = round_to(c.dtype, value);
  for (double& value : x.lse) value = round_to(DType::f32, value);
  reference.backward();
  x.out = exact;
  return x;
}

// The tensors of a case: q, k and v are columns of one matrix, and so are their gradients.
struct AttentionBuffers {
  AttentionCase c;
  Buffer qkv, d_qkv, out, d_out, lse, segments;

  AttentionBuffers(const AttentionCase& of, const AttentionValues& x)
      : c(of),
        qkv(c.dtype, {c.rows(), c.fused()}, Spacing{.gap = c.gap}),
        d_qkv(c.dtype, {c.rows(), c.fused()}, Spacing{.gap = c.gap}),
        out(c.dtype, {c.rows(), c.heads, c.width}, Spacing{.gap = c.gap}),
        d_out(c.dtype, {c.rows(), c.heads, c.width}, Spacing{.gap = 2 * c.gap}),
        lse(DType::f32, {c.batch, c.heads, c.length}) {
    Values all;
    for (int64_t r = 0; r < c.rows(); ++r)
      for (const Values* part : {&x.q, &x.k, &x.v}) {
        const auto columns = int64_t(part->size()) / c.rows();
        all.insert(all.end(), part->begin() + r * columns, part->begin() + (r + 1) * columns);
      }
    qkv.set(all);
    d_out.set(x.d_out);
    out.fill(-77);
    d_qkv.fill(-77);
    if (c.documents) segments = Buffer(DType::i32, {c.rows()}, Values(x.segments.begin(), x.segments.end()));
  }
  Tensor part(const Buffer& fused, int which) const {
    const int64_t end[] = {0, c.heads, c.heads + c.kv_heads, c.heads + 2 * c.kv_heads};
    return column_part(fused, end[which] * c.width, end[which + 1] * c.width, end[which + 1] - end[which]);
  }
  AttentionMask mask() const { return {c.window, c.documents ? segments.tensor() : Tensor{}}; }
  Attention forward() const { return {out, lse, part(qkv, 0), part(qkv, 1), part(qkv, 2), mask(), c.batch, c.scale()}; }
  AttentionGrad backward() const {
    return {part(d_qkv, 0), part(d_qkv, 1), part(d_qkv, 2), d_out,  out,     lse,
            part(qkv, 0),   part(qkv, 1),   part(qkv, 2),   mask(), c.batch, c.scale()};
  }
  // d_q, d_k or d_v, without the others.
  Values gradient(int which) const {
    const Values all = d_qkv.values();
    const int64_t begin[] = {0, c.heads, c.heads + c.kv_heads, c.heads + 2 * c.kv_heads};
    Values v;
    for (int64_t r = 0; r < c.rows(); ++r)
      v.insert(v.end(), all.begin() + r * c.fused() + begin[which] * c.width,
               all.begin() + r * c.fused() + begin[which + 1] * c.width);
    return v;
  }
};

}  // namespace trainer::test
