#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_float.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/matmul_kernel.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {

// Two vectors times as many rows as registers hold sums: 12 of 16, or 24 of 32.
constexpr int kTileRows = kWidth == 16 ? 12 : 6;
constexpr int kTileColumns = 2 * int(kWidth);

// Sums of a tile. Every loop over them is unrolled: one index that is not constant would put them all into memory.
template <int kRows>
struct Tile {
  V left[kRows], right[kRows];

  // Lanes of a are `lane` floats apart (1 where kAcross), its depths `step` (1 otherwise).
  template <bool kAcross>
  HWY_INLINE void multiply(const float* HWY_RESTRICT a, Steps steps, const float* HWY_RESTRICT b, int64_t depth) {
    const int64_t lane = kAcross ? 1 : steps.lane, step = kAcross ? steps.element : 1;
    V l[kRows], r[kRows];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) l[i] = r[i] = hn::Zero(df);
    for (int64_t k = 0; k < depth; ++k, a += step, b += kTileColumns) {
      const V b0 = load(b), b1 = load(b + kWidth);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const V x = set(a[i * lane]);
        l[i] = hn::MulAdd(x, b0, l[i]);
        r[i] = hn::MulAdd(x, b1, r[i]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) left[i] = l[i], right[i] = r[i];
  }
  HWY_INLINE void add(const float* from, int64_t stride) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i, from += stride) {
      left[i] = hn::Add(load(from), left[i]);
      right[i] = hn::Add(load(from + kWidth), right[i]);
    }
  }
  HWY_INLINE void add(const float* one, const float* other, int64_t stride) {
    const V l = load(one), r = load(one + kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i, other += stride) {
      left[i] = hn::Add(hn::Add(l, load(other)), left[i]);
      right[i] = hn::Add(hn::Add(r, load(other + kWidth)), right[i]);
    }
  }
  HWY_INLINE void write(float* to, int64_t stride) const {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i, to += stride) {
      store(left[i], to);
      store(right[i], to + kWidth);
    }
  }
};

// Where a tile lies: its first row and column, and how much of it exists.
struct Place {
  int64_t m, n, rows, columns;
};

// A tile that the last columns of c cut off.
template <int kRows>
HWY_INLINE void finish_edge(const BlockProduct& p, const Place& at, const float* HWY_RESTRICT sums) {
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < at.columns; ++j) {
      float* c = p.c + (at.m + i) * p.c_stride + at.n + j;
      float start = p.add ? *c : 0;
      if (p.start.bias) start += p.start.bias[at.n + j];
      if (p.start.residual) start += p.start.residual[(at.m + i) * p.start.residual_stride + at.n + j];
      *c = start + sums[i * kTileColumns + j];
    }
}

template <int kRows, bool kAcross>
void multiply_tile(const BlockProduct& p, Steps steps, const float* a, const Place& at) {
  if constexpr (kRows > 1)
    if (at.rows < kRows) return multiply_tile<kRows - 1, kAcross>(p, steps, a, at);
  Tile<kRows> tile;
  tile.template multiply<kAcross>(a, steps, reinterpret_cast<const float*>(p.b) + at.n * p.elements, p.elements);
  if (at.columns < kTileColumns) {
    HWY_ALIGN float sums[kRows * kTileColumns];
    tile.write(sums, kTileColumns);
    return finish_edge<kRows>(p, at, sums);
  }
  float* c = p.c + at.m * p.c_stride + at.n;
  const float* residual = p.start.residual + (p.start.residual ? at.m * p.start.residual_stride + at.n : 0);
  if (p.add) tile.add(c, p.c_stride);
  else if (p.start.bias && p.start.residual) tile.add(p.start.bias + at.n, residual, p.start.residual_stride);
  else if (p.start.residual) tile.add(residual, p.start.residual_stride);
  else if (p.start.bias) tile.add(p.start.bias + at.n, 0);
  tile.write(c, p.c_stride);
}

// `a_panel` floats from one tile's rows of a to the next.
template <bool kAcross>
void multiply_tiles(const BlockProduct& p, Steps steps, int64_t a_panel) {
  for (int64_t n = 0; n < p.columns; n += kTileColumns) {
    const float* a = reinterpret_cast<const float*>(p.a);
    for (int64_t m = 0; m < p.rows; m += kTileRows, a += a_panel)
      multiply_tile<kTileRows, kAcross>(
          p, steps, a,
          {m, n, std::min<int64_t>(kTileRows, p.rows - m), std::min<int64_t>(kTileColumns, p.columns - n)});
  }
}

void multiply(const BlockProduct& p) {
  if (p.steps.lane == 0) multiply_tiles<true>(p, {1, kTileRows}, kTileRows * p.elements);
  else if (p.steps.lane == 1) multiply_tiles<true>(p, p.steps, kTileRows);
  else multiply_tiles<false>(p, p.steps, kTileRows * p.steps.lane);
}

constexpr MatMulKernel kFloatKernel{kTileRows, kTileColumns, 256, 1, pack_floats, multiply, true};

template <class T, class B>
void start(const RowEnds& row, bool accumulate) {
  const auto* bias = reinterpret_cast<const B*>(row.bias);
  const auto* residual = reinterpret_cast<const T*>(row.residual);
  const auto* c = reinterpret_cast<const T*>(row.c);
  for_vectors(size_t(row.columns), [&](size_t i, auto part) HWY_ATTR {
    V sums = bias ? load(bias + i, part) : hn::Zero(df);
    if (residual) sums = hn::Add(sums, load(residual + i, part));
    if (accumulate) sums = hn::Add(sums, load(c + i, part));
    store(sums, row.sums + i, part);
  });
}

template <class T>
void finish(const RowEnds& row) {
  auto* c = reinterpret_cast<T*>(row.c);
  for_vectors(size_t(row.columns), [&](size_t i, auto part) HWY_ATTR { store(load(row.sums + i, part), c + i, part); });
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {

const MatMulKernel& float_kernel() { return *TRAINER_VECTOR(kFloatKernel); }

void start_row(const RowEnds& row, bool accumulate) {
  with_dtype("matmul", row.dtype, [&](auto c) {
    with_dtype("matmul", row.bias_dtype, [&](auto bias) {
      TRAINER_VECTOR(start<decltype(c), decltype(bias)>)(row, accumulate);
    });
  });
}
void finish_row(const RowEnds& row) {
  with_dtype("matmul", row.dtype, [&](auto c) { TRAINER_VECTOR(finish<decltype(c)>)(row); });
}

}  // namespace trainer::cpu
#endif
