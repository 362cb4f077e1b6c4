// The AVX512-BF16 attention kernels themselves, for one width of heads. Everything has internal linkage.
#pragma once
#include "kernels/cpu/attention_pair_tile.h"

namespace trainer::cpu {
namespace {

// A tile of `queries` from q on, and the tile of kPairKeys keys from k on; whether some of those must not see some of
// these.
struct PairTiles {
  int64_t q, queries, k;
  bool hides;
};

// ---- forward

template <int kWidth>
struct PairForward {
  const AttentionJob& job;
  const PairForwardScratch& w;

  // Scores of six queries, then their weights as bf16, and the running maximum, sum and factor of what was before.
  void weigh(const PairTiles& tiles, int64_t column, int64_t row) const {
    bf16 spare[kRegisterRows * kWidth];
    const int64_t q = tiles.q + row;
    const KeyRange keys = seen_keys(job, q, tiles.k, kPairKeys, kPairPanel);
    if (keys.begin >= keys.end) return;
    const PairLeft queries = six_rows<kWidth>(job, job.q, column, q, spare);
    for (int64_t k = keys.begin; k < keys.end; k += kPairPanel) {
      PairTile<kRegisterRows> scores;
      scores.zero();
      scores.add_product(queries, w.k_panels + (tiles.k - w.first) * kWidth / 2 + k, kPairKeys, kWidth / 2);
      if (tiles.hides) hide(job, q, tiles.k + k, w.segments + (tiles.k - w.first + k), scores);
      scores.write(w.scores + k, kPairKeys);
    }
    for (int64_t i = 0; i < kRegisterRows; ++i)
      soften(w.scores + i * kPairKeys, keys.begin, round_up(keys.end, 32), row + i);
  }
  // A row of scores [begin, end) as weights; `begin` and `end` are multiples of 32.
  void soften(const float* scores, int64_t begin, int64_t end, int64_t row) const {
    const float c = job.scale * kLog2E;
    __m512 top0 = _mm512_set1_ps(w.top[row]), top1 = top0, sum0 = _mm512_setzero_ps(), sum1 = sum0;
    for (int64_t k = begin; k < end; k += 32) {
      top0 = _mm512_max_ps(top0, _mm512_loadu_ps(scores + k));
      top1 = _mm512_max_ps(top1, _mm512_loadu_ps(scores + k + 16));
    }
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(top0, top1));
    const __m512 by = _mm512_set1_ps(c), less = _mm512_set1_ps(top * c);
    for (int64_t k = begin; k < end; k += 32) {
      const __m512 weight0 = exp2_pair(_mm512_fmsub_ps(_mm512_loadu_ps(scores + k), by, less));
      const __m512 weight1 = exp2_pair(_mm512_fmsub_ps(_mm512_loadu_ps(scores + k + 16), by, less));
      sum0 = _mm512_add_ps(sum0, weight0);
      sum1 = _mm512_add_ps(sum1, weight1);
      _mm512_storeu_si512(w.weights + row * kWeightRow + k, to_bf16s(weight0, weight1));
    }
    const __m512 factor = exp2_pair(_mm512_set1_ps((w.top[row] - top) * c));
    w.factor[row] = _mm_cvtss_f32(_mm512_castps512_ps128(factor));
    w.sum[row] = w.sum[row] * w.factor[row] + _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1));
    w.top[row] = top;
  }

  void add_values(const PairTiles& tiles, int64_t row) const {
    const KeyRange keys = seen_keys(job, tiles.q + row, tiles.k, kPairKeys, kPairPanel);
    if (keys.begin >= keys.end) return;
    const PairLeft weights{w.weights + row * kWeightRow + keys.begin, kWeightRow * int64_t(sizeof(bf16)), 4};
    const uint32_t* values = w.v_pairs + (tiles.k - w.first + keys.begin) / 2 * kWidth;
    for (int64_t c = 0; c < kWidth; c += kPairPanel) {
      PairTile<kRegisterRows> out;
      out.read_scaled(w.out + row * kWidth + c, kWidth, w.factor + row);
      out.add_product(weights, values + c, kWidth, (keys.end - keys.begin) / 2);
      out.write(w.out + row * kWidth + c, kWidth);
    }
  }

  void tile(int64_t head, int64_t q, int64_t queries) const {
    PairTiles tiles{q, queries, 0, false};
    std::memset(w.out, 0, size_t(kTile * kWidth) * sizeof(float));
    for (int64_t i = 0; i < kTile; ++i) {
      w.top[i] = kHidden;
      w.sum[i] = 0;
    }
    for (tiles.k = round_down(larger(0, q - job.window + 1), kPairKeys); tiles.k < q + queries; tiles.k += kPairKeys) {
      const Sight seen = sight(job, q, queries, tiles.k, kPairKeys);
      if (seen == Sight::nothing) continue;
      tiles.hides = seen == Sight::some;
      for (int64_t row = 0; row < queries; row += kRegisterRows) weigh(tiles, head * kWidth, row);
      for (int64_t row = 0; row < queries; row += kRegisterRows) add_values(tiles, row);
    }
    for (int64_t i = 0; i < queries; ++i) {
      round_row<kWidth>(w.out + i * kWidth, 1 / w.sum[i], data_of<bf16>(job.out, q + i) + head * kWidth);
      job.lse[head * job.length + q + i] = w.top[i] * job.scale * kLog2E + __builtin_log2f(w.sum[i]);
    }
  }
};

template <int kWidth>
void forward_of(const AttentionJob& job, std::byte* scratch) {
  Carver memory(scratch);
  const PairForwardScratch w(job, memory);
  copy_segments(job, w.first, w.keys, w.segments);
  pack_columns<kWidth>(job.k, w.first, job.end - w.first, w.keys, w.k_panels);
  pack_rows<kWidth>(job.v, w.first, job.end - w.first, w.keys, w.v_pairs);
  const PairForward<kWidth> forward{job, w};
  for (int64_t head = 0; head < job.heads; ++head)
    for (int64_t q = job.begin; q < job.end; q += kTile) forward.tile(head, q, smaller(kTile, job.end - q));
}

// ---- backward

template <int kWidth>
struct PairBackward {
  const AttentionJob& job;
  const PairBackwardScratch& w;

  // Of six queries: the weights P, from the scores and lse, and the gradients of the scores, dS = P (dP - delta). Both
  // as pairs of queries, dS by rows as well.
  void weigh(const PairTiles& tiles, int64_t column, int64_t row) const {
    bf16 spare_q[kRegisterRows * kWidth], spare_d_out[kRegisterRows * kWidth];
    const int64_t q = tiles.q + row;
    const KeyRange keys = seen_keys(job, q, tiles.k, kPairKeys, kPairPanel);
    if (keys.begin >= keys.end) return;
    const PairLeft queries = six_rows<kWidth>(job, job.q, column, q, spare_q);
    const PairLeft d_out = six_rows<kWidth>(job, job.d_out, column, q, spare_d_out);
    for (int64_t k = keys.begin; k < keys.end; k += kPairPanel) {
      const int64_t panel = tiles.k * kWidth / 2 + k, pairs = row / 2 * kWeightPairRow + k;
      weigh_panel(tiles, q, k, queries, w.k_panels + panel, w.weight_pairs + pairs);
      score_gradients(q, row, k, d_out, w.v_panels + panel, w.d_score_pairs + pairs);
    }
  }
  void weigh_panel(const PairTiles& tiles, int64_t q, int64_t k, PairLeft queries, const uint32_t* keys,
                   uint32_t* pairs) const {
    PairTile<kRegisterRows> p;
    p.zero();
    p.add_product(queries, keys, kPairKeys, kWidth / 2);
    if (tiles.hides) hide(job, q, tiles.k + k, w.segments + tiles.k + k, p);
    const __m512 c = _mm512_set1_ps(job.scale * kLog2E);
#pragma GCC unroll 6
    for (int i = 0; i < kRegisterRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        p.at[i][v] = exp2_pair(_mm512_fmsub_ps(p.at[i][v], c, _mm512_set1_ps(w.lse[q + i])));
    p.write(w.panel, kPairPanel);
    write_pairs(p, pairs);
  }
  void score_gradients(int64_t q, int64_t row, int64_t k, PairLeft d_out, const uint32_t* values,
                       uint32_t* pairs) const {
    PairTile<kRegisterRows> d;
    d.zero();
    d.add_product(d_out, values, kPairKeys, kWidth / 2);
#pragma GCC unroll 6
    for (int i = 0; i < kRegisterRows; ++i) {
      const __m512 delta = _mm512_set1_ps(w.delta[q + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        d.at[i][v] =
            _mm512_mul_ps(_mm512_loadu_ps(w.panel + i * kPairPanel + 16 * v), _mm512_sub_ps(d.at[i][v], delta));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v += 2)
        _mm512_storeu_si512(w.d_scores + (row + i) * kWeightRow + k + 16 * v, to_bf16s(d.at[i][v], d.at[i][v + 1]));
    }
    write_pairs(d, pairs);
  }
  [[gnu::always_inline]] static void write_pairs(const PairTile<kRegisterRows>& tile, uint32_t* to) {
#pragma GCC unroll 3
    for (int i = 0; i < kRegisterRows; i += 2)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        _mm512_storeu_si512(to + i / 2 * kWeightPairRow + 16 * v, to_pairs(tile.at[i][v], tile.at[i + 1][v]));
  }

  template <int kRows>
  static void add(float* sums, PairLeft a, const uint32_t* b, int64_t pairs) {
    for (int64_t c = 0; c < kWidth; c += kPairPanel) {
      PairTile<kRows> sum;
      sum.read(sums + c, kWidth);
      sum.add_product(a, b + c, kWidth, pairs);
      sum.write(sums + c, kWidth);
    }
  }
  void add_d_q(const PairTiles& tiles) const {
    for (int64_t row = 0; row < tiles.queries; row += kRegisterRows) {
      const KeyRange keys = seen_keys(job, tiles.q + row, tiles.k, kPairKeys, kPairPanel);
      if (keys.begin >= keys.end) continue;
      const PairLeft d_scores{w.d_scores + row * kWeightRow + keys.begin, kWeightRow * int64_t(sizeof(bf16)), 4};
      add<kRegisterRows>(w.d_q + (tiles.q + row) * kWidth, d_scores, w.k_pairs + (tiles.k + keys.begin) / 2 * kWidth,
                         (keys.end - keys.begin) / 2);
    }
  }
  // sums [keys] += left^T rows: `left` are pairs of weights or of their gradients, `rows` pairs of the rows of queries.
  void add_transposed(const PairTiles& tiles, const uint32_t* left, const uint32_t* rows, float* sums) const {
    const int64_t keys = smaller(kPairKeys, round_up(job.length - tiles.k, 2));
    for (int64_t k = 0; k < keys; k += kRegisterRows) {
      const int64_t begin = larger(0, tiles.k + k - tiles.q) / 2;
      const int64_t end = smaller(tiles.queries, tiles.k + k + kRegisterRows - 1 + job.window - tiles.q);
      const int64_t pairs = (end + 1) / 2 - begin;
      if (pairs <= 0) continue;
      const PairLeft a{left + begin * kWeightPairRow + k, 4, kWeightPairRow * 4};
      const uint32_t* b = rows + (tiles.q / 2 + begin) * kWidth;
      float* to = sums + (tiles.k + k) * kWidth;
      if (keys - k >= 6) add<6>(to, a, b, pairs);
      else if (keys - k >= 4) add<4>(to, a, b, pairs);
      else add<2>(to, a, b, pairs);
    }
  }

  // What a head's backward reads of its rows: q and d_out as pairs of rows, lse, and delta = rowsum(d_out * out).
  void prepare(int64_t head) const {
    const int64_t n = job.length, column = head * kWidth * int64_t(sizeof(bf16));
    pack_rows<kWidth>({job.q.data + column, job.q.stride}, 0, n, w.rows, w.q_pairs);
    pack_rows<kWidth>({job.d_out.data + column, job.d_out.stride}, 0, n, w.rows, w.d_out_pairs);
    std::memset(w.d_q, 0, size_t(w.rows * kWidth) * sizeof(float));
    for (int64_t t = 0; t < w.rows; ++t) {
      w.lse[t] = t < n ? job.lse[head * n + t] : -kHidden;  // of rows that do not exist: their weights are 0
      w.delta[t] = 0;
      if (t >= n) continue;
      const bf16 *out = data_of<const bf16>(job.out, t) + head * kWidth,
                 *d_out = data_of<const bf16>(job.d_out, t) + head * kWidth;
      __m512 sum = _mm512_setzero_ps();
      for (int d = 0; d < kWidth; d += 32)
        sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_loadu_si512(out + d), (__m512bh)_mm512_loadu_si512(d_out + d));
      w.delta[t] = _mm512_reduce_add_ps(sum);
    }
  }
  void head(int64_t head) const {
    prepare(head);
    for (int64_t k = 0; k < job.length; k += kPairKeys)
      for (int64_t q = k; q < smaller(job.length, k + kPairKeys - 1 + job.window); q += kTile) {
        const int64_t queries = smaller(kTile, job.length - q);
        const Sight seen = sight(job, q, queries, k, kPairKeys);
        if (seen == Sight::nothing) continue;
        const PairTiles tiles{q, queries, k, seen == Sight::some};
        for (int64_t row = 0; row < queries; row += kRegisterRows) weigh(tiles, head * kWidth, row);
        add_d_q(tiles);
        add_transposed(tiles, w.weight_pairs, w.d_out_pairs, w.d_v);
        add_transposed(tiles, w.d_score_pairs, w.q_pairs, w.d_k);
      }
    write_gradients(w.d_q, job.scale, job.d_q, head * kWidth);
  }
  void write_gradients(const float* rows, float factor, HeadRows to, int64_t column) const {
    for (int64_t t = 0; t < job.length; ++t)
      round_row<kWidth>(rows + t * kWidth, factor, data_of<bf16>(to, t) + column);
  }
};

template <int kWidth>
void backward_of(const AttentionJob& job, std::byte* scratch) {
  Carver memory(scratch);
  const PairBackwardScratch w(job, memory);
  const int64_t keys = round_up(job.length, kPairKeys);
  copy_segments(job, 0, w.rows, w.segments);
  pack_columns<kWidth>(job.k, 0, job.length, keys, w.k_panels);
  pack_columns<kWidth>(job.v, 0, job.length, keys, w.v_panels);
  pack_rows<kWidth>(job.k, 0, job.length, w.rows, w.k_pairs);
  std::memset(w.d_k, 0, size_t(w.rows * kWidth) * sizeof(float));
  std::memset(w.d_v, 0, size_t(w.rows * kWidth) * sizeof(float));
  const PairBackward<kWidth> backward{job, w};
  for (int64_t head = 0; head < job.heads; ++head) backward.head(head);
  backward.write_gradients(w.d_k, job.scale, job.d_k, 0);
  backward.write_gradients(w.d_v, 1, job.d_v, 0);
}

}  // namespace
}  // namespace trainer::cpu
