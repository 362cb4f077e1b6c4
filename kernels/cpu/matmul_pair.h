// The inner kernel for pairs of bf16: each instruction adds two products to sixteen sums.
#pragma once
#include <cstring>

#include "kernels/cpu/avx512_bf16.h"
#include "kernels/cpu/matmul_kernel.h"

namespace trainer::cpu {

inline constexpr int kPairRows = 6, kPairVectors = 4, kPairColumns = 16 * kPairVectors;
inline constexpr int64_t kPairDepth = 1024;

// Every loop over the sums is unrolled: one index that is not constant would put them all into memory.
[[gnu::always_inline]] inline void multiply_pair_tile(const std::byte* a, const std::byte* b, int64_t pairs, float* c,
                                                      int64_t c_stride, bool add) {
  __m512 sums[kPairRows][kPairVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kPairRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kPairVectors; ++v) sums[r][v] = _mm512_setzero_ps();
  for (int64_t k = 0; k < pairs; ++k, a += 4 * kPairRows, b += 4 * kPairColumns) {
    __m512bh columns[kPairVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kPairVectors; ++v) columns[v] = (__m512bh)_mm512_loadu_si512(b + 64 * v);
#pragma GCC unroll 8
    for (int r = 0; r < kPairRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, a + 4 * r, sizeof pair);
      const __m512bh row = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
      for (int v = 0; v < kPairVectors; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], row, columns[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kPairRows; ++r, c += c_stride)
#pragma GCC unroll 4
    for (int v = 0; v < kPairVectors; ++v)
      _mm512_storeu_ps(c + 16 * v, add ? _mm512_add_ps(_mm512_loadu_ps(c + 16 * v), sums[r][v]) : sums[r][v]);
}

static inline void multiply_pairs(const BlockProduct& p) {
  alignas(64) float edge[kPairRows * kPairColumns];
  for (int64_t n = 0; n < p.columns; n += kPairColumns)
    for (int64_t m = 0; m < p.rows; m += kPairRows) {
      const std::byte *a = p.a + 4 * m * p.elements, *b = p.b + 4 * n * p.elements;
      float* c = p.c + m * p.c_stride + n;
      const int64_t rows = p.rows - m, columns = p.columns - n;
      if (rows >= kPairRows && columns >= kPairColumns) {
        multiply_pair_tile(a, b, p.elements, c, p.c_stride, p.add);
        continue;
      }
      multiply_pair_tile(a, b, p.elements, edge, kPairColumns, false);
      for (int64_t i = 0; i < rows && i < kPairRows; ++i)
        for (int64_t j = 0; j < columns && j < kPairColumns; ++j) {
          float& to = c[i * p.c_stride + j];
          to = (p.add ? to : 0) + edge[i * kPairColumns + j];
        }
    }
}

}  // namespace trainer::cpu
