// Element-wise work and sums over rows.
#pragma once
#include "core/ops/kernel.h"

namespace trainer {

struct Copy {  // to = from: same elements; converts between f32 and bf16 where the dtypes differ
  static constexpr const char* kName = "copy";
  Tensor to, from;
  Cost cost() const { return {0, double(to.bytes() + from.bytes())}; }
};
struct Upload {  // to = what lies at `from`, in host memory that the device reaches, when the lane gets here
  static constexpr const char* kName = "upload";
  Tensor to;
  const std::byte* from = nullptr;
  Cost cost() const { return {0, double(to.bytes())}; }
};
struct Add {  // to += from, or to = base + from where base is given: f32 sums, one rounding. base is of to's dtype.
  static constexpr const char* kName = "add";
  Tensor to, from, base = {};
  Cost cost() const { return {double(to.elements()), double(2 * to.bytes() + from.bytes())}; }
};
struct Scale {  // x *= factor
  static constexpr const char* kName = "scale";
  Tensor x;
  float factor = 1;
  Cost cost() const { return {double(x.elements()), 2.0 * double(x.bytes())}; }
};
struct Zero {
  static constexpr const char* kName = "zero";
  Tensor x;
  Cost cost() const { return {0, double(x.bytes())}; }
};

// sum[c] (+)= sum over rows of x[n][c]; sum f32 or bf16 [C], x [N, C] (strided rows allowed). The rows are added in f32 and in a fixed
// order; bf16 is rounded once.
struct ColumnSum {
  static constexpr const char* kName = "column_sum";
  Tensor sum, x;
  bool accumulate = false;
  Cost cost() const { return {double(x.elements()), double(x.bytes() + sum.bytes())}; }
};

// y = base + mask(x) / (1 - rate): element (n, c) of x [N, C] is kept iff philox(key ^ control.seed, rows[n] * C + c, control.step)
// says so. rows i64 [N] is each row's global index, so the mask does not depend on the layout. base may be empty or y.
// The backward pass is the same op: d_x = mask(d_y) / (1 - rate).
struct Dropout {
  static constexpr const char* kName = "dropout";
  Tensor y, x, base, rows, control;
  uint64_t key = 0;     // hash of the block's global name
  float rate = 0;
  Cost cost() const { return {2.0 * double(x.elements()), double(x.bytes() + y.bytes() + (base ? base.bytes() : 0))}; }
};
// The mask itself, for every device and for tests: is element `index` kept at this step?
// One philox draw serves four consecutive indices.
bool dropout_keeps(uint64_t key, uint64_t seed, int64_t step, uint64_t index, float rate);

}  // namespace trainer
