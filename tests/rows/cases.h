// The shapes, dtypes and layouts every row kernel is tried on.
#pragma once
#include "tests/support/compare.h"
#include "run_op.h"

namespace trainer::test {

struct Case {
  int64_t rows, columns;
  DType dtype;
  Spacing spacing;
};

// Tails of every vector and tile, one task and many, dense and strided, aligned and not.
template <class F>
void for_each_case(F&& f) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Spacing spacing : {Spacing{}, Spacing{7, 3}})
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1},
                                          {3, 3},
                                          {1, 17},
                                          {17, 8},
                                          {5, 63},
                                          {63, 65},
                                          {33, 130},
                                          {300, 130},
                                          {70, 1027}}) {
        INFO(rows << " x " << columns << " " << name_of(dtype) << ", gap " << spacing.gap << ", shift "
                  << spacing.shift);
        f(Case{rows, columns, dtype, spacing});
      }
}
// f(to, from) for every pair of dtypes, on every shape.
template <class F>
void for_each_pair(F&& f) {
  for_each_case([&](const Case& to) {
    for (const DType dtype : {DType::f32, DType::bf16}) f(to, Case{to.rows, to.columns, dtype, to.spacing});
  });
}
inline constexpr double kRoundedOnce = 1.001 / 256;  // relative, to bf16: half a step of 8 bits, and what f32 is off
inline Buffer random_buffer(const Case& c, uint32_t seed, double scale = 1) {
  return random_buffer(c.dtype, {c.rows, c.columns}, seed, scale, c.spacing);
}
inline Buffer empty_buffer(const Case& c) { return Buffer(c.dtype, {c.rows, c.columns}, c.spacing); }

// f(value of each input, ...) of every element.
template <class F, class... Inputs>
Values map(F&& f, const Inputs&... inputs) {
  const size_t n = std::get<0>(std::tie(inputs...)).size();
  Values result(n);
  for (size_t i = 0; i < n; ++i) result[i] = f(inputs[i]...);
  return result;
}

}  // namespace trainer::test
