// Which kernels serve an attention, and that tensor-core tiles are skipped, loaded and read as they should: counted by
// the emulated device.
#include <catch2/catch.hpp>

#include "in_child.h"
#include "kernels/cuda/attention.h"
#include "run_op.h"
#include "tests/attention/check.h"
#include "tests/cuemu/stats.h"

using namespace trainer;
using namespace trainer::test;
using cuda::AttentionPath;

namespace {

AttentionBuffers buffers_of(const AttentionCase& c) { return AttentionBuffers(c, reference_values(c)); }

template <class Op>
cuemu::Stats count(const Op& op) {
  cuemu::stats() = {};
  run_op(op);
  return cuemu::stats();
}

// mma.m16n8k16 instructions of so many products of a warp's 16 rows with `columns` columns over `depth`.
uint64_t instructions(int64_t columns, int64_t depth) { return uint64_t(columns / 8 * (depth / 16)); }

}  // namespace

TEST_CASE("tensor cores serve bf16 of three head widths in rows at multiples of 16 bytes; the generic path the rest") {
  const Setting device("FAKECUDA_ARCH", "80");  // without warp groups
  const auto path = [](AttentionCase c) { return cuda::attention_path(buffers_of(c).forward()); };
  for (int64_t width : {64, 96, 128}) {
    REQUIRE(path({.length = 3, .width = width, .dtype = DType::bf16}) == AttentionPath::tensor_core);
    REQUIRE(path({.length = 3, .width = width, .dtype = DType::f32}) == AttentionPath::generic);
    REQUIRE(path({.length = 3, .width = width, .dtype = DType::bf16, .gap = 8}) == AttentionPath::tensor_core);
    REQUIRE(path({.length = 3, .width = width, .dtype = DType::bf16, .gap = 4}) == AttentionPath::generic);
  }
  for (int64_t width : {32, 80, 256})
    REQUIRE(path({.length = 3, .width = width, .dtype = DType::bf16}) == AttentionPath::generic);
  REQUIRE(cuda::name_of(AttentionPath::generic) == "generic");
  REQUIRE(cuda::name_of(AttentionPath::tensor_core) == "tensor_core");
  REQUIRE(cuda::name_of(AttentionPath::warp_group) == "warp_group");
}

TEST_CASE("one tensor off its alignment sends the whole operation to the generic path") {
  const Setting device("FAKECUDA_ARCH", "80");  // without warp groups
  const AttentionBuffers b = buffers_of({.length = 3, .width = 64, .dtype = DType::bf16});
  AttentionGrad op = b.backward();
  REQUIRE(cuda::attention_path(op) == AttentionPath::tensor_core);
  for (Tensor AttentionGrad::*t :
       {&AttentionGrad::q, &AttentionGrad::k, &AttentionGrad::v, &AttentionGrad::out, &AttentionGrad::d_out,
        &AttentionGrad::d_q, &AttentionGrad::d_k, &AttentionGrad::d_v}) {
    op = b.backward();
    (op.*t).data += 2;
    REQUIRE(cuda::attention_path(op) == AttentionPath::generic);
  }
}

TEST_CASE("tiles that no query sees are skipped, and matrices are read without bank conflicts") {
  const Setting device("FAKECUDA_ARCH", "80");  // without warp groups
  for (int64_t width : {64, 96, 128}) {
    CAPTURE(width);
    const AttentionCase whole{.length = 256, .width = width, .dtype = DType::bf16};
    const AttentionBuffers b = buffers_of(whole);
    const cuemu::Stats forward = count(b.forward());
    // Warps of 32 queries and tiles of 64 keys: 1, 1, 2, 2, 3, 3, 4, 4 tiles to a warp. Of 32 keys, 1 to 8.
    const uint64_t keys = width == 128 ? 36 * 32 : 20 * 64;
    REQUIRE(forward.mma == 2 * 2 * instructions(int64_t(keys), width));
    REQUIRE(forward.ldm_conflict_ways == 0);
    REQUIRE(forward.ldm > 0);
    const cuemu::Stats backward = count(b.backward());
    // Warps of 16 rows: 4 * (1 + 2 + 3 + 4) of them to a tile of 64; with tiles of 32, half of the diagonal is skipped
    // as well.
    const uint64_t pairs = width == 128 ? 36 : 40;
    REQUIRE(backward.mma == pairs * 7 * instructions(64, width));
    REQUIRE(backward.ldm_conflict_ways == 0);

    AttentionCase narrow = whole;
    narrow.window = 60;
    REQUIRE(count(buffers_of(narrow).forward()).mma < forward.mma);
    REQUIRE(count(buffers_of(narrow).backward()).mma < backward.mma);
  }
}

TEST_CASE("tiles of other documents are skipped") {
  const Setting device("FAKECUDA_ARCH", "80");  // without warp groups
  AttentionCase c{.length = 256, .width = 64, .dtype = DType::bf16, .documents = 2};
  AttentionValues x = reference_values(c);
  for (size_t t = 0; t < x.segments.size(); ++t) x.segments[t] = t < 128 ? 7 : 3;
  const AttentionBuffers b(c, x);
  // Two documents of 128: 1, 1, 2, 2 tiles of keys to a warp, twice.
  REQUIRE(count(b.forward()).mma == 12 * 2 * 2 * instructions(64, 64));
  REQUIRE(count(b.backward()).mma == 2 * 12 * 7 * instructions(64, 64));
}

TEST_CASE("a tile that ends one document and begins the next is masked for tiles within either") {
  for (auto [first_id, border] : {std::pair(2, 100), std::pair(9, 100), std::pair(2, 63)}) {
    const AttentionCase c{.length = 256, .width = 64, .dtype = DType::bf16, .documents = 2};
    AttentionValues x = reference_values(c);
    for (size_t t = 0; t < x.segments.size(); ++t) x.segments[t] = t < size_t(border) ? first_id : 5;
    AttentionReference reference(c, x);
    reference.forward();
    reference.backward();
    const AttentionBuffers b(c, x);
    run_op(b.forward());
    require_close(b.out, x.out, kRoundedWeights);
    run_op(b.backward());
    require_close(b.gradient(0), x.d_q, kRoundedWeights);
    require_close(b.gradient(1), x.d_k, kRoundedWeights);
    require_close(b.gradient(2), x.d_v, kRoundedWeights);
  }
}
