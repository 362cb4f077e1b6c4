#include "tests/rows/cases.h"
#include "tests/support/record.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr uint64_t kKey = 0x123456789abcdef0, kSeed = 0xfedcba9876543210;
constexpr int64_t kStep = (int64_t{7} << 32) + 5;

Values reference_dropout(const Values& x, const Values& base, const Values& rows, size_t columns, float rate) {
  Values y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const uint64_t index = uint64_t(rows[i / columns]) * columns + i % columns;
    const double kept = dropout_keeps(kKey, kSeed, kStep, index, rate) ? x[i] / (1 - double(rate)) : 0;
    y[i] = kept + (base.empty() ? 0 : base[i]);
  }
  return y;
}

}  // namespace

TEST_CASE("dropout keeps exactly what its definition keeps") {
  Record<Control> control({.step = kStep, .seed = kSeed});
  for_each_case([&](const Case& c) {
    const Buffer x = random_buffer(c, 1), base = random_buffer(c, 2);
    Values row_numbers(static_cast<size_t>(c.rows));
    for (size_t n = 0; n < row_numbers.size(); ++n) row_numbers[n] = double((n * 37) % 101 + (n % 3) * 4294967291);
    const Buffer rows(DType::i64, {c.rows}, row_numbers);
    for (const float rate : {0.0f, 0.1f, 0.5f, 0.99f}) {
      Buffer y = empty_buffer(c);
      run_with_any_threads(Dropout{y, x, {}, rows, control, kKey, rate}, {&y});
      require_close(y, reference_dropout(x.values(), {}, row_numbers, size_t(c.columns), rate), rounded_once(c.dtype));
      run_op(Dropout{y, x, base, rows, control, kKey, rate});
      require_close(y, reference_dropout(x.values(), base.values(), row_numbers, size_t(c.columns), rate),
                    rounded_once(c.dtype, 10));
    }
  });
}

TEST_CASE("dropout's draws cross 2^32 as the definition does") {
  Record<Control> control({.step = kStep, .seed = kSeed});
  const Buffer x(DType::f32, {1, 64}, Values(64, 1.0));
  const Values row{268435455};  // 2^28 - 1: element 64 * row + 60 is draw 2^32 - 1... of four
  const Buffer rows(DType::i64, {1}, row);
  Buffer y(DType::f32, {1, 64});
  run_op(Dropout{y, x, {}, rows, control, kKey, 0.5f});
  require_close(y, reference_dropout(x.values(), {}, row, 64, 0.5f), {0, 0});
}

TEST_CASE("dropout may add onto base in place, and its backward pass is itself") {
  Record<Control> control({.step = kStep, .seed = kSeed});
  const Shape shape{9, 33};
  const Buffer x = random_buffer(DType::f32, shape, 1), rows(DType::i64, {9}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  Buffer in_place = random_buffer(DType::f32, shape, 2);
  const Values wanted = reference_dropout(x.values(), in_place.values(), rows.values(), 33, 0.3f);
  run_op(Dropout{in_place, x, in_place, rows, control, kKey, 0.3f});
  require_close(in_place, wanted, {1e-6, 1e-6});
}

TEST_CASE("dropout refuses a rate that leaves nothing") {
  Record<Control> control;
  Buffer x(DType::f32, {1, 4}, Values(4)), rows(DType::i64, {1}, Values{0});
  REQUIRE_THROWS_WITH(run_op(Dropout{x, x, {}, rows, control, 0, 1.0f}),
                      "dropout: wanted a rate within [0, 1), found 1");
}
