// Naive float64 references of the row operations, straight from their definitions in core/ops.
#pragma once
#include <cmath>

#include "tests/support/buffer.h"

namespace trainer::test {

inline double reference_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double reference_gelu(double x) {
  return x * reference_sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}
inline double reference_gelu_slope(double x) {
  const double k = 2 * std::sqrt(2 / M_PI), s = reference_sigmoid(k * (x + 0.044715 * x * x * x));
  return s + x * s * (1 - s) * k * (1 + 3 * 0.044715 * x * x);
}

// Statistics and result of a normalisation of `columns` values a row; `centred` is LayerNorm.
struct ReferenceNorm {
  Values y, mean, rstd, x_hat;
};
inline ReferenceNorm reference_norm(const Values& x, const Values& weight, const Values& bias, double epsilon,
                                    bool centred) {
  const size_t columns = weight.size(), rows = x.size() / columns;
  ReferenceNorm norm{Values(x.size()), Values(rows), Values(rows), Values(x.size())};
  for (size_t r = 0; r < rows; ++r) {
    const double* row = &x[r * columns];
    double mean = 0, square = 0;
    for (size_t c = 0; c < columns; ++c) mean += centred ? row[c] / double(columns) : 0;
    for (size_t c = 0; c < columns; ++c) square += (row[c] - mean) * (row[c] - mean) / double(columns);
    norm.mean[r] = mean;
    norm.rstd[r] = 1 / std::sqrt(square + epsilon);
    for (size_t c = 0; c < columns; ++c) {
      const size_t i = r * columns + c;
      norm.x_hat[i] = (row[c] - mean) * norm.rstd[r];
      norm.y[i] = norm.x_hat[i] * weight[c] + (centred ? bias[c] : 0);
    }
  }
  return norm;
}

struct ReferenceNormGrad {
  Values d_x, d_weight, d_bias;
};
inline ReferenceNormGrad reference_norm_grad(const ReferenceNorm& norm, const Values& weight, const Values& d_y,
                                             bool centred) {
  const size_t columns = weight.size(), rows = d_y.size() / columns;
  ReferenceNormGrad grad{Values(d_y.size()), Values(columns), Values(columns)};
  for (size_t r = 0; r < rows; ++r) {
    double level = 0, along = 0;
    for (size_t c = 0; c < columns; ++c) {
      const size_t i = r * columns + c;
      grad.d_weight[c] += d_y[i] * norm.x_hat[i];
      grad.d_bias[c] += d_y[i];
      level += centred ? d_y[i] * weight[c] / double(columns) : 0;
      along += d_y[i] * weight[c] * norm.x_hat[i] / double(columns);
    }
    for (size_t c = 0; c < columns; ++c) {
      const size_t i = r * columns + c;
      grad.d_x[i] = norm.rstd[r] * (d_y[i] * weight[c] - level - norm.x_hat[i] * along);
    }
  }
  return grad;
}

// Rotation of one head of `size` values by the angles position * inv_freq.
inline void reference_rotate(double* head, size_t size, int64_t position, const float* inv_freq, double direction) {
  for (size_t i = 0; i < size / 2; ++i) {
    const double angle = direction * double(float(position) * inv_freq[i]);  // the product is f32 by definition
    const double a = head[i], b = head[i + size / 2];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + size / 2] = b * std::cos(angle) + a * std::sin(angle);
  }
}

inline Values reference_column_sum(const Values& x, size_t columns) {
  Values sum(columns);
  for (size_t i = 0; i < x.size(); ++i) sum[i % columns] += x[i];
  return sum;
}

}  // namespace trainer::test
