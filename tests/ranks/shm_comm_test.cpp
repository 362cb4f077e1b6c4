// Every operation of the shm backend against a naive reference in rank order, bit for bit.
#include <catch2/catch.hpp>

#include "parallel/comm/shm_copy.h"
#include "tests/ranks/comm_cases.h"

using namespace trainer;

namespace {

const std::vector<int> kRanks{1, 2, 3, 4, 7};
const std::vector<int64_t> kSizes{1, 63, 65, 257, 4099};

}  // namespace

TEST_CASE("every operation gives the bits of the reference: dtypes, ranks, odd sizes, in place or not") {
  for (const int n : kRanks)
    run_ranks(n, [&](Exchange& exchange) {
      TestRank rank(exchange, 0, size_t{8} << 20);
      const auto comm = rank.comm(n);
      test_every_operation(rank, *comm, kSizes);
    });
}

TEST_CASE("sums over more ranks than one pass takes keep their order, and NaN wins a maximum") {
  constexpr int kMany = 15;
  constexpr int64_t n = 5000;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<std::vector<std::byte>> storage(kMany + 1, std::vector<std::byte>(n * size_of(dtype)));
    std::vector<std::byte*> from;
    for (int r = 0; r < kMany; ++r) {
      from.push_back(storage[size_t(r)].data());
      fill(make_tensor(from.back(), dtype, {n}), r);
    }
    const Tensor out = make_tensor(storage[kMany].data(), dtype, {n});
    for (const auto op : {Comm::Reduce::sum, Comm::Reduce::max}) {
      reduce({op, dtype}, from, {{out.data}}, n);
      expect_equal(out, "reduce", [&](int64_t i) { return reduced(dtype, kMany, i, op); });
    }
    set(make_tensor(from[3], dtype, {n}), 7, NAN);
    set(make_tensor(from[3], dtype, {n}), 4999, NAN);
    for (const auto op : {Comm::Reduce::sum, Comm::Reduce::max}) {
      reduce({op, dtype}, from, {{out.data}}, n);
      REQUIRE(std::isnan(get(out, 7)));
      REQUIRE(std::isnan(get(out, 4999)));
      REQUIRE(get(out, 8) == reduced(dtype, kMany, 8, op));
    }
  }
  REQUIRE_THROWS_WITH(check_reduces({Comm::Reduce::sum, DType::u8}), Catch::Contains("u8"));
}

TEST_CASE("large copies are whole at any alignment") {
  const size_t n = (size_t{8} << 20) + 777;
  std::vector<std::byte> from(n + 200), to(n + 200);
  for (size_t i = 0; i < from.size(); ++i) from[i] = std::byte(scramble(i) & 0xff);
  for (const size_t begin : {0, 1, 63, 100}) {
    std::fill(to.begin(), to.end(), std::byte{0});
    copy_bytes(to.data() + begin, from.data() + 7, n);
    REQUIRE(std::memcmp(to.data() + begin, from.data() + 7, n) == 0);
    REQUIRE(to[begin + n] == std::byte{0});
  }
}

TEST_CASE("two lanes at once, with random delays, never mix") {
  for (const uint64_t seed : {1, 2, 3})
    run_ranks(3, [&](Exchange& exchange) {
      TestRank rank(exchange, seed * 100);
      const auto a = rank.comm(3, Lane::reduce), b = rank.comm(3, Lane::gather);
      const Tensor sums = rank.take(DType::f32, 1000), full = rank.take(DType::bf16, 3 * 500);
      fill(sums, rank.rank());
      const Tensor shard = flat_part(full, 500 * rank.rank(), 500 * (rank.rank() + 1));
      fill(shard, rank.rank());
      for (int turn = 0; turn < 60; ++turn) {
        a->all_reduce(rank.lane(Lane::reduce), sums, Comm::Reduce::max);
        b->all_gather(rank.lane(Lane::gather), shard, full);
        if (turn % 7 == 0) a->barrier(rank.lane(Lane::reduce));
      }
      rank.drain();
      expect_equal(sums, "all_reduce", [&](int64_t i) { return reduced(DType::f32, 3, i, Comm::Reduce::max); });
      expect_equal(full, "all_gather",
                   [&](int64_t i) { return rounded(DType::bf16, value(DType::bf16, int(i / 500), i % 500)); });
    });
}

TEST_CASE("a tensor outside of the arena, with strided rows, or of a wrong size is refused when issued") {
  run_ranks(2, [](Exchange& exchange) {
    TestRank rank(exchange);
    const auto comm = rank.comm(2);
    const auto refused = [&](const std::string& text, auto&& issue) {
      try {
        issue();
      } catch (const Error& e) {
        expect(std::string(e.what()).find(text) != std::string::npos, e.what());
        return;
      }
      throw std::logic_error("not refused: " + text);
    };
    std::byte outside[64];
    const Tensor t = rank.take(DType::f32, 64);
    Tensor strided = reshaped(t, {8, 8});
    strided.row_stride = 8;
    strided.shape = {8, 4};
    refused("outside of it", [&] { comm->all_reduce(rank.lane(), make_tensor(outside, DType::f32, {16})); });
    refused("strided", [&] { comm->all_reduce(rank.lane(), strided); });
    refused("2 ranks", [&] { comm->all_gather(rank.lane(), t, rank.take(DType::f32, 100)); });
    refused("overlaps", [&] { comm->all_gather(rank.lane(), flat_part(t, 1, 33), t); });
    refused("another rank", [&] { comm->send(rank.lane(), t, rank.rank()); });
    refused("reduction of u8", [&] { comm->all_reduce(rank.lane(), rank.take(DType::u8, 8)); });
  });
}
