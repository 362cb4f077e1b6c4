#include "tests/rows/cases.h"
#include "tests/support/reference.h"

using namespace trainer;
using namespace trainer::test;

namespace {

struct RopeCase {
  int64_t rows, heads, head_dim, seq_len;
  DType dtype = DType::f32;
  Spacing spacing{};
};

Values reference_rope(const Rope& op, Values x, const Values& positions) {
  const size_t heads = size_t(op.x.shape[1]), size = size_t(op.x.shape[2]);
  std::vector<float> inv_freq(size / 2);
  rope_frequencies(op.frequencies, int64_t(size), inv_freq.data());
  for (size_t h = 0; h < x.size() / size; ++h) {
    const size_t n = h / heads;
    const int64_t position = positions.empty() ? int64_t(n) % op.seq_len : int64_t(positions[n]);
    reference_rotate(&x[h * size], size, position, inv_freq.data(), op.inverse ? -1 : 1);
  }
  return x;
}

void check_rope(const RopeCase& c, const Values& positions, const RopeFrequencies& frequencies = {}) {
  const Shape shape{c.rows, c.heads, c.head_dim};
  const Buffer start = random_buffer(c.dtype, shape, 1, 1, c.spacing);
  const Buffer ids(DType::i32, {c.rows}, positions.empty() ? Values(size_t(c.rows)) : positions);
  for (const bool inverse : {false, true}) {
    Buffer x(c.dtype, shape, start.values(), c.spacing);
    const Rope op{x, positions.empty() ? Tensor{} : ids.tensor(), c.seq_len, frequencies, inverse};
    run_with_any_threads(op, {&x});
    require_close(x, reference_rope(op, start.values(), positions),
                  c.dtype == DType::bf16 ? rounded_once(c.dtype) : Tolerance{0, 4e-7});
  }
}

}  // namespace

TEST_CASE("rope agrees with float64, dense and strided, for any head") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Spacing spacing : {Spacing{}, Spacing{5, 1}})
      for (const int64_t head_dim : {2, 6, 34, 64, 126, 128}) {
        INFO(name_of(dtype) << ", heads of " << head_dim);
        check_rope({17, 3, head_dim, 17, dtype, spacing}, {});
        check_rope({65, 2, head_dim, 13, dtype, spacing}, {});  // five sequences of 13
        check_rope({7, 8, head_dim, 7, dtype, spacing}, {});    // whole groups of four heads
      }
}

TEST_CASE("rope follows the positions it is given") {
  check_rope({5, 1, 64, 200}, {3, 199, 0, 3, 77});
  RopeFrequencies llama{500000, true, 8, 1, 4, 8192};
  check_rope({5, 2, 128, 30000}, {0, 29999, 12345, 8192, 1}, llama);
}

TEST_CASE("rope's sine and cosine hold at large angles") {
  Values positions;
  for (int i = 0; i < 4000; ++i) positions.push_back((i * 7919) % 131072);
  check_rope({4000, 1, 16, 131072}, positions);
}

TEST_CASE("rope's inverse undoes it") {
  const Buffer start = random_buffer(DType::f32, {130, 2, 64}, 1);
  Buffer x(DType::f32, {130, 2, 64}, start.values());
  run_op(Rope{x, {}, 130, {}, false});
  run_op(Rope{x, {}, 130, {}, true});
  require_close(x, start.values(), {0, 5e-7});
}

TEST_CASE("rope refuses a position outside the sequence") {
  Buffer x(DType::f32, {2, 1, 8}, Values(16, 1.0));
  const Buffer positions(DType::i32, {2}, Values{0, 4});
  if constexpr (kIdsAreChecked)
    REQUIRE_THROWS_WITH(run_op(Rope{x, positions, 4, {}, false}), "rope: row 1: wanted a position below 4, found 4");
}
