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

// Every loop over the sums is unrolled: one index that is not constant would put them all into memory.
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t depth,
                              float* HWY_RESTRICT c, int64_t c_stride, bool add) {
  V left[kTileRows], right[kTileRows];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) left[r] = right[r] = hn::Zero(df);
  for (int64_t k = 0; k < depth; ++k, a += kTileRows, b += kTileColumns) {
    const V b0 = load(b), b1 = load(b + kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const V x = set(a[r]);
      left[r] = hn::MulAdd(x, b0, left[r]);
      right[r] = hn::MulAdd(x, b1, right[r]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r, c += c_stride) {
    store(add ? hn::Add(load(c), left[r]) : left[r], c);
    store(add ? hn::Add(load(c + kWidth), right[r]) : right[r], c + kWidth);
  }
}

void multiply(const BlockProduct& p) {
  HWY_ALIGN float edge[kTileRows * kTileColumns];
  const float *a = reinterpret_cast<const float*>(p.a), *b = reinterpret_cast<const float*>(p.b);
  for (int64_t n = 0; n < p.columns; n += kTileColumns)
    for (int64_t m = 0; m < p.rows; m += kTileRows) {
      const float *a_panel = a + m * p.elements, *b_panel = b + n * p.elements;
      float* c = p.c + m * p.c_stride + n;
      const int64_t rows = std::min<int64_t>(kTileRows, p.rows - m),
                    columns = std::min<int64_t>(kTileColumns, p.columns - n);
      if (rows == kTileRows && columns == kTileColumns) {
        multiply_tile(a_panel, b_panel, p.elements, c, p.c_stride, p.add);
        continue;
      }
      multiply_tile(a_panel, b_panel, p.elements, edge, kTileColumns, false);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) {
          float& to = c[i * p.c_stride + j];
          to = (p.add ? to : 0) + edge[i * kTileColumns + j];
        }
    }
}

constexpr MatMulKernel kFloatKernel{kTileRows, kTileColumns, 256, 1, pack_floats, multiply};

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
