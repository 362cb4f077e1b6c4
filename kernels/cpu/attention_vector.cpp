#include "kernels/cpu/attention_vector.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_vector.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/attention_vector-inl.h"
#include "kernels/cpu/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {
namespace {

// A tile of `queries` from q on, and the tile of keys from k on; whether some of those must not see some of these.
struct TilePair {
  int64_t q, queries, k;
  bool hides;
  int64_t groups() const { return (queries + kRegisterRows - 1) / kRegisterRows; }
};

// Hides from six rows of scores, of queries q... and keys k..., what they must not see. `segments` are those of the
// keys from k on.
HWY_INLINE void hide(const AttentionJob& job, int64_t q, int64_t k, const int32_t* segments, RegisterTile<2>& scores) {
  const DI di;
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    const auto key = hn::Iota(di, int32_t(k) + v * int32_t(kWidth));
#pragma GCC unroll 6
    for (int i = 0; i < kRegisterRows; ++i) {
      const int32_t query = int32_t(q) + i;
      auto sees = hn::And(hn::Lt(key, hn::Set(di, query + 1)), hn::Gt(key, hn::Set(di, query - int32_t(job.window))));
      if (job.segments && query < job.length)
        sees = hn::And(sees, hn::Eq(hn::LoadU(di, segments + v * int64_t(kWidth)), hn::Set(di, job.segments[query])));
      scores.at[i][v] = hn::IfThenElse(hn::RebindMask(df, sees), scores.at[i][v], set(kHidden));
    }
  }
}

// Rows of keys or values as panels [keys / kPanel][width][kPanel].
void pack_panels(const float* rows, int64_t stride, int64_t keys, int64_t width, float* panels) {
  for (int64_t k = 0; k < keys; k += kPanel) transpose_panel(rows + k * stride, stride, width, panels + k * width);
}

// ---- forward

struct Forward {
  const AttentionJob& job;
  const ForwardScratch& w;
  int64_t first, columns;  // the first packed key; columns of a row that are computed

  // Scores of six queries, in base 2; then their weights, and the running maximum, sum and factor of what was before.
  void weigh(const TilePair& pair, int64_t row) const {
    const int64_t q = pair.q + row;
    const KeyRange keys = seen_keys(job, q, pair.k, kTile, kPanel);
    float* s = w.weights + row * kTile;
    for (int64_t k = keys.begin; k < keys.end; k += kPanel) {
      RegisterTile<2> scores;
      scores.zero();
      scores.add_product({w.q + row * w.stride, w.stride, 1}, w.k_panels + (pair.k - first + k) * job.width, kPanel,
                         job.width);
      if (pair.hides) hide(job, q, pair.k + k, w.segments + (pair.k - first + k), scores);
      scores.write(s + k, kTile);
    }
    for (int64_t i = row; i < row + kRegisterRows; ++i, s += kTile) {
      V top = set(w.top[i]);
      for (int64_t k = keys.begin; k < keys.end; k += int64_t(kWidth)) top = hn::Max(top, load(s + k));
      top = hn::MaxOfLanes(df, top);
      V sum = hn::Zero(df);
      for (int64_t k = keys.begin; k < keys.end; k += int64_t(kWidth)) {
        const V weight = exp2_to_zero(hn::Sub(load(s + k), top));
        sum = hn::Add(sum, weight);
        store(weight, s + k);
      }
      w.factor[i] = hn::GetLane(exp2_to_zero(hn::Sub(set(w.top[i]), top)));
      w.sum[i] = w.sum[i] * w.factor[i] + hn::GetLane(hn::SumOfLanes(df, sum));
      w.top[i] = hn::GetLane(top);
    }
  }

  void add_values(const TilePair& pair) const {
    for_panels(columns, [&](auto vectors, int64_t c) HWY_ATTR {
      for (int64_t row = 0; row < pair.queries; row += kRegisterRows) {
        const KeyRange keys = seen_keys(job, pair.q + row, pair.k, kTile, kPanel);
        if (keys.begin >= keys.end) continue;
        RegisterTile<vectors> out;
        float* at = w.out + row * w.stride + c;
        out.read_scaled(at, w.stride, w.factor + row);
        out.add_product({w.weights + row * kTile + keys.begin, kTile, 1},
                        w.v + (pair.k - first + keys.begin) * w.stride + c, w.stride, keys.end - keys.begin);
        out.write(at, w.stride);
      }
    });
  }

  template <class T>
  void tile(const T* q, T* out, float* lse, int64_t begin, int64_t queries) const {
    TilePair pair{begin, queries, 0, false};
    const int64_t rows = pair.groups() * kRegisterRows;
    gather_rows(q, job.q.stride, job.width, queries, job.scale * kLog2E, w.q, w.stride);
    std::memset(w.out, 0, size_t(rows * w.stride) * sizeof(float));
    for (int64_t i = 0; i < rows; ++i) {
      w.top[i] = kHidden;
      w.sum[i] = 0;
    }
    for (pair.k = round_down(larger(0, begin - job.window + 1), kTile); pair.k < begin + queries; pair.k += kTile) {
      const Sight seen = sight(job, begin, queries, pair.k, kTile);
      if (seen == Sight::nothing) continue;
      pair.hides = seen == Sight::some;
      for (int64_t row = 0; row < queries; row += kRegisterRows) weigh(pair, row);
      add_values(pair);
    }
    for (int64_t i = 0; i < queries; ++i) {
      scale_row(w.out + i * w.stride, 1 / w.sum[i], job.width, out + i * job.out.stride);
      lse[i] = w.top[i] + std::log2(w.sum[i]);
    }
  }
};

template <class T>
void attention_forward(const AttentionJob& job, const ForwardScratch& w) {
  const int64_t first = w.first, keys = job.end - first;
  gather_rows(data_of<const T>(job.k, first), job.k.stride, job.width, keys, 1, w.v, w.stride);
  pack_panels(w.v, w.stride, keys, job.width, w.k_panels);
  gather_rows(data_of<const T>(job.v, first), job.v.stride, job.width, keys, 1, w.v, w.stride);
  const Forward forward{job, w, first, round_up(job.width, int64_t(kWidth))};
  for (int64_t h = 0; h < job.heads; ++h)
    for (int64_t q = job.begin; q < job.end; q += kTile)
      forward.tile(data_of<const T>(job.q, q) + h * job.width, data_of<T>(job.out, q) + h * job.width,
                   job.lse + h * job.length + q, q, smaller(kTile, job.end - q));
}

// ---- backward

struct Backward {
  const AttentionJob& job;
  const BackwardScratch& w;
  int64_t columns;

  // Of six queries: the weights P, from the scores and lse, and the gradients of the scores, dS = P (dP - delta).
  void weigh(const TilePair& pair, int64_t row) const {
    const int64_t q = pair.q + row;
    const KeyRange keys = seen_keys(job, q, pair.k, kTile, kPanel);
    for (int64_t k = keys.begin; k < keys.end; k += kPanel) {
      RegisterTile<2> p, d;
      p.zero();
      p.add_product({w.q + q * w.stride, w.stride, 1}, w.k_panels + (pair.k + k) * job.width, kPanel, job.width);
      if (pair.hides) hide(job, q, pair.k + k, w.segments + pair.k + k, p);
#pragma GCC unroll 6
      for (int i = 0; i < kRegisterRows; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) p.at[i][v] = exp2_to_zero(hn::Sub(p.at[i][v], set(w.lse[q + i])));
      p.write(w.weights + row * kTile + k, kTile);
      d.zero();
      d.add_product({w.d_out + q * w.stride, w.stride, 1}, w.v_panels + (pair.k + k) * job.width, kPanel, job.width);
      p.read(w.weights + row * kTile + k, kTile);
#pragma GCC unroll 6
      for (int i = 0; i < kRegisterRows; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) d.at[i][v] = hn::Mul(p.at[i][v], hn::Sub(d.at[i][v], set(w.delta[q + i])));
      d.write(w.d_scores + row * kTile + k, kTile);
    }
  }

  void add_d_q(const TilePair& pair) const {
    for_panels(columns, [&](auto vectors, int64_t c) HWY_ATTR {
      for (int64_t row = 0; row < pair.queries; row += kRegisterRows) {
        const KeyRange keys = seen_keys(job, pair.q + row, pair.k, kTile, kPanel);
        if (keys.begin >= keys.end) continue;
        RegisterTile<vectors> sum;
        float* at = w.d_q + (pair.q + row) * w.stride + c;
        sum.read(at, w.stride);
        sum.add_product({w.d_scores + row * kTile + keys.begin, kTile, 1}, w.k + (pair.k + keys.begin) * w.stride + c,
                        w.stride, keys.end - keys.begin);
        sum.write(at, w.stride);
      }
    });
  }

  // sums [keys] += left^T rows, where `left` [queries][kTile] are weights or their gradients and `rows` those of the
  // queries.
  void add_transposed(const TilePair& pair, const float* left, const float* rows, float* sums) const {
    const int64_t keys = smaller(kTile, job.length - pair.k);
    for_panels(columns, [&](auto vectors, int64_t c) HWY_ATTR {
      for (int64_t k = 0; k < keys; k += kRegisterRows) {
        const int64_t begin = larger(0, pair.k + k - pair.q);
        const int64_t end = smaller(pair.queries, pair.k + k + kRegisterRows - 1 + job.window - pair.q);
        if (begin >= end) continue;
        RegisterTile<vectors> sum;
        float* at = sums + (pair.k + k) * w.stride + c;
        sum.read(at, w.stride);
        sum.add_product({left + begin * kTile + k, 1, kTile}, rows + (pair.q + begin) * w.stride + c, w.stride,
                        end - begin);
        sum.write(at, w.stride);
      }
    });
  }

  void head() const {
    for (int64_t k = 0; k < job.length; k += kTile)
      for (int64_t q = k; q < smaller(job.length, k + kTile - 1 + job.window); q += kTile) {
        const int64_t queries = smaller(kTile, job.length - q);
        const Sight seen = sight(job, q, queries, k, kTile);
        if (seen == Sight::nothing) continue;
        const TilePair pair{q, queries, k, seen == Sight::some};
        for (int64_t row = 0; row < queries; row += kRegisterRows) weigh(pair, row);
        add_d_q(pair);
        add_transposed(pair, w.weights, w.d_out, w.d_v);
        add_transposed(pair, w.d_scores, w.q, w.d_k);
      }
  }
};

// What a head's backward reads of its rows: q and d_out as f32, lse, and delta = rowsum(d_out * out).
template <class T>
void prepare_head(const AttentionJob& job, const BackwardScratch& w, int64_t h) {
  const int64_t n = job.length, padded = padded_rows(n);
  gather_rows(data_of<const T>(job.q) + h * job.width, job.q.stride, job.width, n, job.scale * kLog2E, w.q, w.stride);
  gather_rows(data_of<const T>(job.d_out) + h * job.width, job.d_out.stride, job.width, n, 1, w.d_out, w.stride);
  for (int64_t t = 0; t < padded; ++t) {
    w.lse[t] = t < n ? job.lse[h * n + t] : -kHidden;  // of rows that do not exist: their weights are 0
    w.delta[t] = 0;
    if (t >= n) continue;
    const T* out = data_of<const T>(job.out, t) + h * job.width;
    const float* d_out = w.d_out + t * w.stride;
    w.delta[t] = sum_over(size_t(job.width), [&](V sum, size_t i, auto part) HWY_ATTR {
      return hn::MulAdd(load(out + i, part), load(d_out + i, part), sum);
    });
  }
}

template <class T>
void scatter_rows(const float* rows, int64_t stride, int64_t count, float factor, int64_t width, HeadRows to,
                  int64_t column) {
  for (int64_t t = 0; t < count; ++t) scale_row(rows + t * stride, factor, width, data_of<T>(to, t) + column);
}

template <class T>
void attention_backward(const AttentionJob& job, const BackwardScratch& w) {
  const int64_t n = job.length, padded = padded_rows(n);
  const size_t bytes = size_t(padded * w.stride) * sizeof(float);
  gather_rows(data_of<const T>(job.v), job.v.stride, job.width, n, 1, w.k, w.stride);
  pack_panels(w.k, w.stride, n, job.width, w.v_panels);
  gather_rows(data_of<const T>(job.k), job.k.stride, job.width, n, 1, w.k, w.stride);
  pack_panels(w.k, w.stride, n, job.width, w.k_panels);
  std::memset(w.d_k, 0, bytes);
  std::memset(w.d_v, 0, bytes);
  const Backward backward{job, w, round_up(job.width, int64_t(kWidth))};
  for (int64_t h = 0; h < job.heads; ++h) {
    prepare_head<T>(job, w, h);
    std::memset(w.d_q, 0, bytes);
    backward.head();
    scatter_rows<T>(w.d_q, w.stride, n, job.scale, job.width, job.d_q, h * job.width);
  }
  scatter_rows<T>(w.d_k, w.stride, n, kLn2, job.width, job.d_k, 0);  // q was scaled by scale * log2(e)
  scatter_rows<T>(w.d_v, w.stride, n, 1, job.width, job.d_v, 0);
}

}  // namespace
}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {

template <class T>
void vector_forward(const AttentionJob& job, std::byte* scratch) {
  Carver memory(scratch);
  ForwardScratch w(job, memory);
  copy_segments(job, w.first, w.keys, w.segments);
  TRAINER_VECTOR(attention_forward<T>)(job, w);
}
template <class T>
void vector_backward(const AttentionJob& job, std::byte* scratch) {
  Carver memory(scratch);
  BackwardScratch w(job, memory);
  copy_segments(job, 0, w.rows, w.segments);
  TRAINER_VECTOR(attention_backward<T>)(job, w);
}

template void vector_forward<float>(const AttentionJob&, std::byte*);
template void vector_forward<bf16>(const AttentionJob&, std::byte*);
template void vector_backward<float>(const AttentionJob&, std::byte*);
template void vector_backward<bf16>(const AttentionJob&, std::byte*);

}  // namespace trainer::cpu
#endif  // HWY_ONCE
