// One token at a time against a cache equals the last row of attention over the whole sequence.
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "run_op.h"
#include "tests/attention/reference.h"
#include "tests/support/compare.h"

using namespace trainer;
using namespace trainer::test;

namespace {

// Rows `t` of [batch, length, columns].
Values last_rows(const Values& x, int64_t batch, int64_t length) {
  const int64_t columns = int64_t(x.size()) / (batch * length);
  Values v;
  for (int64_t b = 0; b < batch; ++b) {
    const auto row = x.begin() + ((b + 1) * length - 1) * columns;
    v.insert(v.end(), row, row + columns);
  }
  return v;
}
// [batch, length, columns] as the first rows of [batch, capacity, columns]; the others hold what must not be read.
Values cache_of(const Values& x, int64_t batch, int64_t length, int64_t capacity) {
  const int64_t columns = int64_t(x.size()) / (batch * length);
  Values v(size_t(batch * capacity * columns), NAN);
  for (int64_t b = 0; b < batch; ++b)
    std::copy_n(x.begin() + b * length * columns, length * columns, v.begin() + b * capacity * columns);
  return v;
}

}  // namespace

TEST_CASE("decoding equals the last row of attention") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t length : {1, 64, 65, 130})
      for (int64_t window : {0, 50})
        for (int64_t width : {6, 64}) {
          const AttentionCase c{.batch = 2,
                                .length = length,
                                .heads = 4,
                                .kv_heads = 2,
                                .width = width,
                                .window = window,
                                .dtype = dtype};
          CAPTURE(length, window, width, name_of(dtype));
          const AttentionValues x = reference_values(c);
          const int64_t capacity = length + 3, columns = c.kv_heads * width;
          const Buffer q(dtype, {c.batch, c.heads, width}, last_rows(x.q, c.batch, length), Spacing{.gap = 4});
          const Buffer k(dtype, {c.batch, capacity, columns}, cache_of(x.k, c.batch, length, capacity));
          const Buffer v(dtype, {c.batch, capacity, columns}, cache_of(x.v, c.batch, length, capacity));
          const Buffer out(dtype, {c.batch, c.heads, width});
          run_op(AttentionDecode{out, q, k, v, length, window, c.kv_heads, c.scale()});
          require_close(out, last_rows(x.out, c.batch, length), rounded_once(dtype, 3));
        }
}

TEST_CASE("decoding refuses a length beyond the cache") {
  const Buffer q(DType::f32, {1, 2, 4}), cache(DType::f32, {1, 8, 8}), out(DType::f32, {1, 2, 4});
  REQUIRE_THROWS_AS(run_op(AttentionDecode{out, q, cache, cache, 9, 0, 2, 1}), Error);
}
