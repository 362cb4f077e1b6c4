// Central differences: what a backward kernel must agree with.
#pragma once
#include <functional>

#include "tests/support/compare.h"

namespace trainer::test {

// d loss / d x by (loss(x + step) - loss(x - step)) / 2 step, an element at a time.
inline Values central_difference(const std::function<double(const Values&)>& loss, Values x, double step = 1e-2) {
  Values gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = loss(x);
    x[i] = at - step;
    gradient[i] = (above - loss(x)) / (2 * step);
    x[i] = at;
  }
  return gradient;
}

// The inner product that makes a scalar loss of a tensor: its gradient with respect to `values` is `weights`.
inline double dot(const Values& values, const Values& weights) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += values[i] * weights[i];
  return sum;
}

}  // namespace trainer::test
