// Register tiles, packing and exp2 of the AVX512-BF16 attention kernels. Everything has internal linkage: units that
// include this are built for newer CPUs than the rest.
#pragma once
#include <cstring>

#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/avx512_bf16.h"

namespace trainer::cpu {
namespace {

constexpr int kVectors = 4;                    // of a register tile
constexpr int64_t kPairPanel = 16 * kVectors;  // its columns

// The left side of a product: the pair of (row i, step r) lies i * row + r * step bytes behind `at`, and needs no
// alignment.
struct PairLeft {
  const void* at;
  int64_t row, step;
};

// Sums of kRows rows of 64 columns. Every loop over them must be unrolled, and the product works on a copy: as soon as
// anything indexes them with a variable, GCC 12 stores all of them in each step (three times slower).
template <int kRows>
struct PairTile {
  __m512 at[kRows][kVectors];

  [[gnu::always_inline]] void zero() {
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) at[i][v] = _mm512_setzero_ps();
  }
  [[gnu::always_inline]] void read(const float* from, int64_t stride) {
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) at[i][v] = _mm512_loadu_ps(from + i * stride + 16 * v);
  }
  [[gnu::always_inline]] void read_scaled(const float* from, int64_t stride, const float* factors) {
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        at[i][v] = _mm512_mul_ps(_mm512_set1_ps(factors[i]), _mm512_loadu_ps(from + i * stride + 16 * v));
  }
  [[gnu::always_inline]] void write(float* to, int64_t stride) const {
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(to + i * stride + 16 * v, at[i][v]);
  }
  // Adds a * b over `count` pairs; b holds a pair per column, `b_row` of them from one step to the next.
  [[gnu::always_inline]] void add_product(PairLeft a, const uint32_t* b, int64_t b_row, int64_t count) {
    __m512 sum[kRows][kVectors];
    const char* left = static_cast<const char*>(a.at);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[i][v] = at[i][v];
    for (int64_t r = 0; r < count; ++r, left += a.step, b += b_row) {
      __m512bh right[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) right[v] = (__m512bh)_mm512_loadu_si512(b + 16 * v);
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
        int32_t pair;
        std::memcpy(&pair, left + i * a.row, sizeof pair);
        const __m512bh row = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm512_dpbf16_ps(sum[i][v], row, right[v]);
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) at[i][v] = sum[i][v];
  }
};

// 2^x for x up to about 100, relative error 4e-6; 0 far below, NaN stays NaN.
[[gnu::always_inline]] inline __m512 exp2_pair(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(x, 8), f = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(0.009666368515f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.055921975842f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24022349038f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693121045203f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

// Hides from six rows of scores, of queries q... and keys k..., what they must not see. `segments` are those of the
// keys from k on.
[[gnu::always_inline]] inline void hide(const AttentionJob& job, int64_t q, int64_t k, const int32_t* segments,
                                        PairTile<kRegisterRows>& scores) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const __m512i key = _mm512_add_epi32(lane, _mm512_set1_epi32(int32_t(k) + 16 * v));
#pragma GCC unroll 6
    for (int i = 0; i < kRegisterRows; ++i) {
      const int32_t query = int32_t(q) + i;
      unsigned sees = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(query + 1), key);
      sees &= _mm512_cmpgt_epi32_mask(key, _mm512_set1_epi32(query - int32_t(job.window)));
      if (job.segments && query < job.length)
        sees &= _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(segments + 16 * v), _mm512_set1_epi32(job.segments[query]));
      scores.at[i][v] = _mm512_mask_mov_ps(_mm512_set1_ps(kHidden), __mmask16(sees), scores.at[i][v]);
    }
  }
}

// Sixteen rows of sixteen 32-bit lanes.
[[gnu::always_inline]] inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      r[4 * i + 2 * j] = _mm512_unpacklo_epi64(t[4 * i + j], t[4 * i + 2 + j]);
      r[4 * i + 2 * j + 1] = _mm512_unpackhi_epi64(t[4 * i + j], t[4 * i + 2 + j]);
    }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    t[j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
    t[8 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    t[12 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
    r[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
    r[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
    r[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xdd);
  }
}

// Rows [count][kWidth] become [rows / kPairKeys][kWidth / 2][kPairKeys]: pairs along a row, a column per row; zeros
// from `count` on.
template <int kWidth>
void pack_columns(HeadRows from, int64_t first, int64_t count, int64_t rows, uint32_t* to) {
  for (int64_t k = 0; k < rows; k += 16)
    for (int64_t d = 0; d < kWidth / 2; d += 16) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        r[i] = k + i < count ? _mm512_loadu_si512(data_of<const bf16>(from, first + k + i) + 2 * d)
                             : _mm512_setzero_si512();
      transpose(r);
      uint32_t* tile = to + k / kPairKeys * kPairKeys * kWidth / 2 + k % kPairKeys;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(tile + (d + i) * kPairKeys, r[i]);
    }
}

// Rows [count][kWidth] become [rows / 2][kWidth]: pairs of successive rows; zeros from `count` on.
template <int kWidth>
void pack_rows(HeadRows from, int64_t first, int64_t count, int64_t rows, uint32_t* to) {
  const auto row = [&](int64_t t, int64_t d) __attribute__((always_inline)) {
    if (t >= count) return _mm512_setzero_si512();
    return _mm512_cvtepu16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data_of<const bf16>(from, first + t) + d)));
  };
  for (int64_t t = 0; t < rows; t += 2, to += kWidth)
    for (int64_t d = 0; d < kWidth; d += 16)
      _mm512_storeu_si512(to + d, _mm512_or_si512(row(t, d), _mm512_slli_epi32(row(t + 1, d), 16)));
}

// Two vectors as 32 values of bf16, the lower one first.
[[gnu::always_inline]] inline __m512i to_bf16s(__m512 lower, __m512 upper) {
  return (__m512i)_mm512_cvtne2ps_pbh(upper, lower);
}

struct PairOrder {
  alignas(64) uint16_t at[32];
};
constexpr PairOrder make_pair_order() {
  PairOrder order{};
  for (int i = 0; i < 32; ++i) order.at[i] = uint16_t(i / 2 + i % 2 * 16);
  return order;
}
constexpr PairOrder kPairOrder = make_pair_order();

// Pairs (lower lane i, upper lane i).
[[gnu::always_inline]] inline __m512i to_pairs(__m512 lower, __m512 upper) {
  return _mm512_permutexvar_epi16(_mm512_loadu_si512(kPairOrder.at), to_bf16s(lower, upper));
}

// to[0, kWidth) = factor * from[0, kWidth).
template <int kWidth>
void round_row(const float* from, float factor, bf16* to) {
  const __m512 by = _mm512_set1_ps(factor);
  for (int d = 0; d < kWidth; d += 32)
    _mm512_storeu_si512(to + d, to_bf16s(_mm512_mul_ps(by, _mm512_loadu_ps(from + d)),
                                         _mm512_mul_ps(by, _mm512_loadu_ps(from + d + 16))));
}

// Six rows from q on, readable beyond the end of the sequence: there the last row is repeated, in `spare`.
template <int kWidth>
PairLeft six_rows(const AttentionJob& job, HeadRows from, int64_t column, int64_t q, bf16* spare) {
  if (q + kRegisterRows <= job.length)
    return {data_of<const bf16>(from, q) + column, from.stride * int64_t(sizeof(bf16)), 4};
  for (int64_t i = 0; i < kRegisterRows; ++i)
    std::memcpy(spare + i * kWidth, data_of<const bf16>(from, smaller(q + i, job.length - 1)) + column,
                kWidth * sizeof(bf16));
  return {spare, kWidth * int64_t(sizeof(bf16)), 4};
}

}  // namespace
}  // namespace trainer::cpu
