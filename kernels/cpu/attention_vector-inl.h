// Register tiles, rows in and out, and exp2 of the portable attention kernels, once per vector target.
#if defined(TRAINER_ATTENTION_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINER_ATTENTION_VECTOR_INL_H_
#undef TRAINER_ATTENTION_VECTOR_INL_H_
#else
#define TRAINER_ATTENTION_VECTOR_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include <hwy/cache_control.h>
#include "kernels/cpu/attention_job.h"

#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {

constexpr int64_t kPanel = 2 * int64_t(kWidth);  // columns of a register tile

// The left side of a product, read by broadcasts: element (i, r) lies i * row + r * step behind `at`.
struct Left {
  const float* at;
  int64_t row, step;
};

// Six rows of kVecs vectors. Loops over them must be unrolled, and the product works on a copy: else GCC 12 keeps them
// in memory.
template <int kVecs>
struct RegisterTile {
  V at[kRegisterRows][kVecs];

  HWY_INLINE void zero() {
#pragma GCC unroll 6
    for (int i = 0; i < kRegisterRows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) at[i][v] = hn::Zero(df);
  }
  HWY_INLINE void read(const float* from, int64_t stride) {
#pragma GCC unroll 6
    for (int i = 0; i < kRegisterRows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) at[i][v] = load(from + i * stride + v * int64_t(kWidth));
  }
  HWY_INLINE void read_scaled(const float* from, int64_t stride, const float* factors) {
#pragma GCC unroll 6
    for (int i = 0; i < kRegisterRows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v)
        at[i][v] = hn::Mul(set(factors[i]), load(from + i * stride + v * int64_t(kWidth)));
  }
  HWY_INLINE void write(float* to, int64_t stride) const {
#pragma GCC unroll 6
    for (int i = 0; i < kRegisterRows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) store(at[i][v], to + i * stride + v * int64_t(kWidth));
  }
  // Adds a * b over `count` steps; row r of b starts r * b_row behind `b`.
  HWY_INLINE void add_product(Left a, const float* HWY_RESTRICT b, int64_t b_row, int64_t count) {
    V sum[kRegisterRows][kVecs];
#pragma GCC unroll 6
    for (int i = 0; i < kRegisterRows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) sum[i][v] = at[i][v];
#pragma GCC unroll 2
    for (int64_t r = 0; r < count; ++r, a.at += a.step, b += b_row) {
      V right[kVecs];
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) right[v] = load(b + v * int64_t(kWidth));
#pragma GCC unroll 6
      for (int i = 0; i < kRegisterRows; ++i) {
        const V left = set(a.at[i * a.row]);
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) sum[i][v] = hn::MulAdd(left, right[v], sum[i][v]);
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < kRegisterRows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) at[i][v] = sum[i][v];
  }
};

// f(number of vectors, first column) for the panels of `columns`, a multiple of kWidth.
template <class F>
HWY_INLINE void for_panels(int64_t columns, F&& f) {
  int64_t c = 0;
  for (; c + kPanel <= columns; c += kPanel) f(std::integral_constant<int, 2>(), c);
  if (c < columns) f(std::integral_constant<int, 1>(), c);
}

// 2^x for x up to about 100, relative error 2e-7; exactly 0 below -126, where exp2 saturates; NaN stays NaN.
HWY_INLINE V exp2_to_zero(V x) {
  const V to_integer = set(12582912.0f);  // 1.5 * 2^23: the sum's low bits are the rounded x
  const V shifted = hn::Add(x, to_integer);
  const V f = hn::Sub(x, hn::Sub(shifted, to_integer));
  V p = hn::MulAdd(set(0.0013390863f), f, set(0.0096760320f));
  p = hn::MulAdd(p, f, set(0.055503571f));
  p = hn::MulAdd(p, f, set(0.24022108f));
  p = hn::MulAdd(p, f, set(0.69314719f));
  p = hn::MulAdd(p, f, set(1.0f));
  const V scaled = hn::BitCast(df, hn::Add(hn::BitCast(DI(), p), hn::ShiftLeft<23>(hn::BitCast(DI(), shifted))));
  return hn::IfThenZeroElse(hn::Lt(x, set(-126.0f)), scaled);
}

// to[0, n) = factor * from[0, n).
template <class To, class From>
HWY_INLINE void scale_row(const From* HWY_RESTRICT from, float factor, int64_t n, To* HWY_RESTRICT to) {
  for_vectors(size_t(n),
              [&](size_t i, auto part) HWY_ATTR { store(hn::Mul(set(factor), load(from + i, part)), to + i, part); });
}

// Rows that tiles read of `count`: whole register tiles, and whole panels.
HWY_INLINE int64_t padded_rows(int64_t count) {
  return larger(round_up(count, kRegisterRows), round_up(count, kPanel));
}

// Rows [0, count) of a head as rows of f32 at `stride`; zero are rows up to padded_rows and columns up to a whole
// vector.
template <class T>
void gather_rows(const T* from, int64_t from_stride, int64_t width, int64_t count, float factor, float* to,
                 int64_t stride) {
  const int64_t columns = round_up(width, int64_t(kWidth));
  for (int64_t t = 0; t < count; ++t, from += from_stride, to += stride) {
    scale_row(from, factor, width, to);
    for (int64_t i = width; i < columns; ++i) to[i] = 0;
  }
  std::memset(to, 0, size_t((padded_rows(count) - count) * stride) * sizeof(float));
}

// Rows [rows][columns] at stride `src_row` become [columns][kPanel]: four by four. `rows` is kPanel; columns are read
// up to the next multiple of four.
HWY_INLINE void transpose_panel(const float* HWY_RESTRICT src, int64_t src_row, int64_t columns,
                                float* HWY_RESTRICT dst) {
  const hn::FixedTag<float, 4> four;
  const hn::Repartition<double, decltype(four)> two;
  const auto halves = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(four, hn::InterleaveLower(two, hn::BitCast(two, a), hn::BitCast(two, b)));
  };
  const auto uppers = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(four, hn::InterleaveUpper(two, hn::BitCast(two, a), hn::BitCast(two, b)));
  };
  for (int64_t c = 0; c < columns; c += 4)
    for (int64_t i = 0; i < kPanel; i += 4) {
      const float* s = src + i * src_row + c;
      const auto r0 = hn::LoadU(four, s), r1 = hn::LoadU(four, s + src_row);
      const auto r2 = hn::LoadU(four, s + 2 * src_row), r3 = hn::LoadU(four, s + 3 * src_row);
      const auto a = hn::InterleaveLower(four, r0, r1), b = hn::InterleaveLower(four, r2, r3);
      const auto e = hn::InterleaveUpper(four, r0, r1), f = hn::InterleaveUpper(four, r2, r3);
      float* d = dst + c * kPanel + i;
      hn::StoreU(halves(a, b), four, d);
      hn::StoreU(uppers(a, b), four, d + kPanel);
      if (c + 2 == columns) continue;
      hn::StoreU(halves(e, f), four, d + 2 * kPanel);
      hn::StoreU(uppers(e, f), four, d + 3 * kPanel);
    }
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
