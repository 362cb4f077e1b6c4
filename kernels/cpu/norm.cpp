#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grid.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector-inl.h"

#ifndef TRAINER_CPU_NORM_ROWS
#define TRAINER_CPU_NORM_ROWS
namespace trainer::cpu {

// Both norms as rows; what RMSNorm has not (mean, bias) is empty.
template <class T>
struct NormRows {
  Rows<T> y, sum;
  Rows<const T> x, residual;
  const T *weight = nullptr, *bias = nullptr;
  float *mean = nullptr, *rstd = nullptr;
  float epsilon = 0;
};
template <class T>
struct NormGradRows {
  Rows<T> d_x;
  Rows<const T> d_y, x, d_residual;
  const T* weight = nullptr;
  const float *mean = nullptr, *rstd = nullptr;
};

}  // namespace trainer::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {

// What is normalised: x, or x + residual as it is stored.
template <class T>
HWY_INLINE const T* norm_input(const NormRows<T>& rows, int64_t r, size_t n) {
  const T* x = rows.x[r];
  if (!rows.residual) return x;
  const T* residual = rows.residual[r];
  T* total = rows.sum[r];
  for_vectors(n, [&](size_t i, auto part)
                     HWY_ATTR { store(hn::Add(load(x + i, part), load(residual + i, part)), total + i, part); });
  return total;
}

template <class T>
void rms_norm(const NormRows<T>& rows, int64_t begin, int64_t end) {
  const size_t n = size_t(rows.x.columns);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = norm_input(rows, r, n);
    const float squares = sum_over(n, [&](V total, size_t i, auto part) HWY_ATTR {
      const V v = load(x + i, part);
      return hn::MulAdd(v, v, total);
    });
    const float rstd = 1 / std::sqrt(squares / float(n) + rows.epsilon);
    rows.rstd[r] = rstd;
    T* y = rows.y[r];
    for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
      store(hn::Mul(hn::Mul(load(x + i, part), set(rstd)), load(rows.weight + i, part)), y + i, part);
    });
  }
}

template <class T>
void layer_norm(const NormRows<T>& rows, int64_t begin, int64_t end) {
  const size_t n = size_t(rows.x.columns);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = norm_input(rows, r, n);
    const float mean =
        sum_over(n, [&](V total, size_t i, auto part) HWY_ATTR { return hn::Add(total, load(x + i, part)); }) /
        float(n);
    const float squares = sum_over(n, [&](V total, size_t i, auto part) HWY_ATTR {
      const V d = keep(hn::Sub(load(x + i, part), set(mean)), part);
      return hn::MulAdd(d, d, total);
    });
    const float rstd = 1 / std::sqrt(squares / float(n) + rows.epsilon);
    rows.mean[r] = mean;
    rows.rstd[r] = rstd;
    T* y = rows.y[r];
    for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
      const V scaled = hn::Mul(hn::Sub(load(x + i, part), set(mean)), set(rstd));
      store(hn::MulAdd(scaled, load(rows.weight + i, part), load(rows.bias + i, part)), y + i, part);
    });
  }
}

// d_weight [n] += the rows' d_y * x_hat.
template <class T>
void rms_norm_grad(const NormGradRows<T>& rows, float* d_weight, int64_t begin, int64_t end) {
  const size_t n = size_t(rows.x.columns);
  for (int64_t r = begin; r < end; ++r) {
    const T *x = rows.x[r], *d_y = rows.d_y[r], *d_residual = rows.d_residual ? rows.d_residual[r] : nullptr;
    const V rstd = set(rows.rstd[r]);
    const float product = sum_over(n, [&](V total, size_t i, auto part) HWY_ATTR {
      const V x_hat = hn::Mul(load(x + i, part), rstd), d = load(d_y + i, part);
      store(hn::MulAdd(d, x_hat, load(d_weight + i, part)), d_weight + i, part);
      return hn::MulAdd(hn::Mul(d, load(rows.weight + i, part)), x_hat, total);
    });
    const V along = set(product / float(n));  // the part of the gradient along x_hat
    T* d_x = rows.d_x[r];
    for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
      const V x_hat = hn::Mul(load(x + i, part), rstd), g = hn::Mul(load(d_y + i, part), load(rows.weight + i, part));
      const V d = hn::NegMulAdd(x_hat, along, g);
      store(hn::MulAdd(d, rstd, d_residual ? load(d_residual + i, part) : hn::Zero(df)), d_x + i, part);
    });
  }
}

// d_weight [n] += the rows' d_y * x_hat, d_bias [n] += the rows' d_y.
template <class T>
void layer_norm_grad(const NormGradRows<T>& rows, float* d_weight, float* d_bias, int64_t begin, int64_t end) {
  const size_t n = size_t(rows.x.columns);
  for (int64_t r = begin; r < end; ++r) {
    const T *x = rows.x[r], *d_y = rows.d_y[r], *d_residual = rows.d_residual ? rows.d_residual[r] : nullptr;
    const V mean = set(rows.mean[r]), rstd = set(rows.rstd[r]);
    V sums = hn::Zero(df), products = sums;
    for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
      const V x_hat = hn::Mul(hn::Sub(load(x + i, part), mean), rstd), d = load(d_y + i, part);
      const V g = hn::Mul(d, load(rows.weight + i, part));
      store(hn::MulAdd(d, x_hat, load(d_weight + i, part)), d_weight + i, part);
      store(hn::Add(d, load(d_bias + i, part)), d_bias + i, part);
      sums = hn::Add(sums, g);
      products = hn::MulAdd(g, x_hat, products);
    });
    const V level = set(sum(sums) / float(n)), along = set(sum(products) / float(n));
    T* d_x = rows.d_x[r];
    for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
      const V x_hat = hn::Mul(hn::Sub(load(x + i, part), mean), rstd);
      const V g = hn::Sub(hn::Mul(load(d_y + i, part), load(rows.weight + i, part)), level);
      const V d = hn::NegMulAdd(x_hat, along, g);
      store(hn::MulAdd(d, rstd, d_residual ? load(d_residual + i, part) : hn::Zero(df)), d_x + i, part);
    });
  }
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {
namespace {

template <class T, class Op>
NormRows<T> norm_rows(const Op& op) {
  NormRows<T> rows;
  rows.y = Rows<T>(op.y);
  rows.sum = Rows<T>(op.sum);
  rows.x = Rows<const T>(op.x);
  rows.residual = Rows<const T>(op.residual);
  rows.weight = data_as<const T>(op.weight);
  rows.rstd = data_as<float>(op.rstd);
  rows.epsilon = op.epsilon;
  return rows;
}
template <class T, class Op>
NormGradRows<T> norm_grad_rows(const Op& op) {
  NormGradRows<T> rows;
  rows.d_x = Rows<T>(op.d_x);
  rows.d_y = Rows<const T>(op.d_y);
  rows.x = Rows<const T>(op.x);
  rows.d_residual = Rows<const T>(op.d_residual);
  rows.weight = data_as<const T>(op.weight);
  rows.rstd = data_as<const float>(op.rstd);
  return rows;
}

}  // namespace

void run(Stream& stream, const RmsNorm& op) {
  with_dtype(op.kName, {&op.y, &op.x, &op.weight, &op.residual, &op.sum}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(rms_norm<T>);
    const auto rows = norm_rows<T>(op);
    for_rows(pool_of(stream), rows.x.count, rows.x.columns,
             [&](int64_t begin, int64_t end) { kernel(rows, begin, end); });
  });
}

void run(Stream& stream, const LayerNorm& op) {
  with_dtype(op.kName, {&op.y, &op.x, &op.weight, &op.bias, &op.residual, &op.sum}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(layer_norm<T>);
    auto rows = norm_rows<T>(op);
    rows.bias = data_as<const T>(op.bias);
    rows.mean = data_as<float>(op.mean);
    for_rows(pool_of(stream), rows.x.count, rows.x.columns,
             [&](int64_t begin, int64_t end) { kernel(rows, begin, end); });
  });
}

void run(Stream& stream, const RmsNormGrad& op) {
  with_dtype(op.kName, {&op.d_x, &op.d_y, &op.x, &op.weight, &op.d_residual}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(rms_norm_grad<T>);
    const auto rows = norm_grad_rows<T>(op);
    const int64_t n = rows.x.columns;
    for_blocks(pool_of(stream), kNormPartials, rows.x.count, n, [&](int64_t block, int64_t begin, int64_t end) {
      float* d_weight = data_as<float>(op.partials) + block * n;
      std::fill_n(d_weight, n, 0.0f);
      kernel(rows, d_weight, begin, end);
    });
  });
}

void run(Stream& stream, const LayerNormGrad& op) {
  with_dtype(op.kName, {&op.d_x, &op.d_y, &op.x, &op.weight, &op.d_residual}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(layer_norm_grad<T>);
    auto rows = norm_grad_rows<T>(op);
    rows.mean = data_as<const float>(op.mean);
    const int64_t n = rows.x.columns;
    for_blocks(pool_of(stream), kNormPartials, rows.x.count, n, [&](int64_t block, int64_t begin, int64_t end) {
      float* d_weight = data_as<float>(op.partials) + block * n;
      float* d_bias = d_weight + kNormPartials * n;
      std::fill_n(d_weight, n, 0.0f);
      std::fill_n(d_bias, n, 0.0f);
      kernel(rows, d_weight, d_bias, begin, end);
    });
  });
}

}  // namespace trainer::cpu
#endif  // HWY_ONCE
