// Attention by warp groups: where it is chosen, which tiles it brings and multiplies, and that it stores them without
// waiting for banks; counted by the emulated device.
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

template <class Op>
cuemu::Stats count(const Op& op) {
  cuemu::stats() = {};
  run_op(op);
  return cuemu::stats();
}

// wgmma.m64nNk16 instructions, a warp's part of each, of so many products of a group's 64 rows over `depth`.
constexpr uint64_t instructions(int64_t products, int64_t depth) { return uint64_t(products * depth / 16 * 4); }
// Boxes of 64 columns that a tile comes in.
constexpr uint64_t boxes(int64_t width) { return width == 64 ? 1 : 2; }

}  // namespace

TEST_CASE("warp groups serve a device of compute capability 9.0, and no other") {
  const AttentionCase c{.length = 3, .width = 128, .dtype = DType::bf16};
  const AttentionBuffers b(c, reference_values(c));
  for (const auto& [arch, path] : {std::pair("80", AttentionPath::tensor_core),
                                   {"89", AttentionPath::tensor_core},
                                   {"90", AttentionPath::warp_group},
                                   {"100", AttentionPath::tensor_core},
                                   {"120", AttentionPath::tensor_core}}) {
    const Setting device("FAKECUDA_ARCH", arch);
    CAPTURE(arch);
    REQUIRE(cuda::attention_path(b.forward()) == path);
    REQUIRE(cuda::attention_path(b.backward()) == path);
    const bool wgmma = path == AttentionPath::warp_group;
    const cuemu::Stats forward = count(b.forward()), backward = count(b.backward());
    REQUIRE((forward.wgmma > 0) == wgmma);
    REQUIRE((forward.mma > 0) == !wgmma);
    REQUIRE((backward.wgmma > 0) == wgmma);
    REQUIRE((backward.mma > 0) == !wgmma);
  }
  const Setting device("FAKECUDA_ARCH", "90"), none("FAKECUDA_DEVICES", "0");
  REQUIRE(cuda::attention_path(b.forward()) == AttentionPath::tensor_core);
  REQUIRE(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("warp groups bring and multiply the tiles that a query sees, and store without bank conflicts") {
  const Setting device("FAKECUDA_ARCH", "90");
  for (int64_t width : {64, 96, 128}) {
    CAPTURE(width);
    const AttentionCase whole{.length = 256, .width = width, .dtype = DType::bf16};
    const AttentionBuffers b(whole, reference_values(whole));
    const cuemu::Stats forward = count(b.forward());
    // Two blocks of two groups of 64 queries; the first has one tile of 128 keys, the second two.
    REQUIRE(forward.wgmma == 3 * 2 * (instructions(1, width) + instructions(1, 128)));
    REQUIRE(forward.tiles == (2 + 3 * 2) * boxes(width));
    REQUIRE(forward.stm == uint64_t(256 / 8 * (width / 8)));
    REQUIRE(forward.stm_conflict_ways == 0);
    const cuemu::Stats backward = count(b.backward());
    // Tiles of 64. Two and four of keys to the blocks of queries; four and two of queries to the blocks of keys.
    const uint64_t of_q = 6 * 2 * (instructions(2, width) + instructions(1, 64));
    const uint64_t of_kv = 6 * 2 * (instructions(2, width) + instructions(2, 64));
    REQUIRE(backward.wgmma == of_q + of_kv);
    REQUIRE(backward.tiles == 2 * (2 * 2 + 6 * 2) * boxes(width));
    REQUIRE(backward.stm == uint64_t(3 * 256 / 8 * (width / 8)));
    REQUIRE(backward.stm_conflict_ways == 0);
    REQUIRE(forward.ldm + forward.mma + backward.ldm + backward.mma == 0);

    AttentionCase narrow = whole;
    narrow.window = 60;
    const AttentionBuffers n(narrow, reference_values(narrow));
    // The second block of queries still sees keys of the first: no tile of 128 less, but of 64.
    REQUIRE(count(n.forward()).wgmma == forward.wgmma);
    REQUIRE(count(n.backward()).wgmma == (of_q + of_kv) / 6 * 5);
  }
}

TEST_CASE("warp groups skip tiles of other documents") {
  const Setting device("FAKECUDA_ARCH", "90");
  const AttentionCase c{.length = 256, .width = 64, .dtype = DType::bf16, .documents = 2};
  AttentionValues x = reference_values(c);
  for (size_t t = 0; t < x.segments.size(); ++t) x.segments[t] = t < 128 ? 7 : 3;
  const AttentionBuffers b(c, x);
  REQUIRE(count(b.forward()).wgmma == 2 * 2 * (instructions(1, 64) + instructions(1, 128)));
  REQUIRE(count(b.backward()).wgmma == 2 * 2 * 2 * (instructions(4, 64) + instructions(3, 64)));
}

TEST_CASE("warp groups go through more tiles than their rings have places, head after head") {
  const Setting device("FAKECUDA_ARCH", "90");
  for (int64_t width : {64, 128})
    check_attention(
        {.length = 461, .heads = 2, .kv_heads = 1, .width = width, .dtype = DType::bf16},
        [](const Attention&) { return kRoundedWeights; }, [](const auto& op) { run_op(op); });
}
