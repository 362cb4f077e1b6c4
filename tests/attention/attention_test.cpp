// Attention against float64 and against itself, at whatever level the CPU has and on whatever device.
#include <catch2/catch.hpp>

#include "attention_sizes.h"
#include "core/base/error.h"
#include "run_op.h"
#include "tests/attention/check.h"
#include "tests/support/gradient_check.h"

using namespace trainer;
using namespace trainer::test;

namespace {

// What a result may miss by.
Tolerance allowed(const Attention& op) {
  if (op.q.dtype == DType::f32) return {2e-5, 1e-5};
  return rounds_weights(op) ? kRoundedWeights : Tolerance{1.0 / 250, 2e-5};
}
void check_case(const AttentionCase& c) {
  check_attention(c, allowed, [](const auto& op) { run_op(op); });
}

}  // namespace

TEST_CASE("attention equals float64 at every odd length, for head widths with and without a fast path") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t length : kLengths)
      for (int64_t width : kOftenWidths) check_case({.length = length, .width = width, .dtype = dtype});
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t width : kOtherWidths) check_case({.length = 101, .width = width, .dtype = dtype, .gap = 2});
  check_case({.length = 33, .width = 256, .dtype = DType::bf16, .gap = 8});  // rows at multiples of 16 bytes
}

TEST_CASE("attention with grouped heads, several sequences and strided rows, aligned or not") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t kv_heads : kKvHeads)
      for (int64_t gap : {6, 8})
        check_case({.batch = kSequences,
                    .length = 107,
                    .heads = 6,
                    .kv_heads = kv_heads,
                    .width = 64,
                    .dtype = dtype,
                    .gap = gap});
}

TEST_CASE("attention with a sliding window, narrower and wider than a tile") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t window : kWindows)
      check_case({.batch = 2, .length = 211, .heads = 2, .kv_heads = 1, .width = 64, .window = window, .dtype = dtype});
}

TEST_CASE("attention within documents, sorted or not, alone and with a window") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t window : kDocumentWindows)
      for (int documents : kDocuments)
        check_case({.batch = 2,
                    .length = 197,
                    .heads = 2,
                    .kv_heads = 2,
                    .width = 64,
                    .window = window,
                    .dtype = dtype,
                    .documents = documents});
}

TEST_CASE("the gradients of attention are those of its forward") {
  const AttentionCase c{.length = 11, .heads = 2, .kv_heads = 1, .width = 6, .window = 5, .documents = 2};
  const AttentionValues x = reference_values(c);
  AttentionBuffers b(c, x);
  run_op(b.forward());
  run_op(b.backward());
  const Values found = b.d_qkv.values(), at = b.qkv.values();
  const auto loss = [&](const Values& qkv) {
    b.qkv.set(qkv);
    run_op(b.forward());
    return dot(b.out.values(), x.d_out);
  };
  require_close(found, central_difference(loss, at), {1e-3, 2e-3});
}

TEST_CASE("attention gives the same bits with any threads") {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const AttentionCase c{.batch = 2,
                          .length = kManyTiles,
                          .heads = 4,
                          .kv_heads = 2,
                          .width = 64,
                          .window = 150,
                          .dtype = dtype,
                          .documents = 4};
    AttentionBuffers b(c, reference_values(c));
    run_with_any_threads(b.forward(), {&b.out, &b.lse});
    run_with_any_threads(b.backward(), {&b.d_qkv});
  }
}

TEST_CASE("large scores neither overflow nor lose the sum") {
  const AttentionCase c{.length = 130, .width = 32};
  const AttentionValues x = reference_values(c, 3, 12);
  AttentionBuffers b(c, x);
  run_op(b.forward());
  require_close(b.out, x.out, {1e-3, 1e-3});
  require_close(b.lse, x.lse, {1e-6, 1e-3});
}

TEST_CASE("a key that is not a number reaches every query that sees it, and no query before its tile") {
  const AttentionCase c{.length = 200, .width = 32};
  AttentionValues x = reference_values(c);
  x.k[size_t(150 * 32 + 5)] = NAN;
  AttentionBuffers b(c, x);
  run_op(b.forward());
  const Values out = b.out.values();
  for (int64_t t = 0; t < c.length; ++t)
    for (int64_t d = 0; d < c.width; ++d) {
      const bool nan = std::isnan(out[size_t(t * c.width + d)]);
      if (t >= 150) REQUIRE(nan);
      if (t < 96) REQUIRE_FALSE(nan);
    }
}

TEST_CASE("attention refuses operands that do not belong together") {
  const AttentionCase c{.length = 8, .heads = 2, .kv_heads = 2, .width = 8};
  AttentionBuffers b(c, reference_values(c));
  Attention op = b.forward();
  op.q.dtype = DType::bf16;
  REQUIRE_THROWS_AS(run_op(op), Error);
  op = b.forward();
  op.k.shape.dims[1] = 3;
  REQUIRE_THROWS_AS(run_op(op), Error);
  op = b.forward();
  op.mask.segments = b.lse;
  REQUIRE_THROWS_AS(run_op(op), Error);
}
