// Every operation of the shm backend against a naive reference in rank order, bit for bit.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "core/base/hash.h"
#include "core/tensor/bf16.h"
#include "parallel/comm/shm_copy.h"
#include "tests/ranks/ranks_comm.h"

using namespace trainer;

namespace {

const std::vector<int> kRanks{1, 2, 3, 4, 7};
const std::vector<int64_t> kSizes{1, 63, 65, 257, 4099};

// What element i of rank r is, in the arithmetic of the sum.
double value(DType dtype, int rank, int64_t i) {
  const double x = double(scramble(uint64_t(rank) << 32 | uint64_t(i)) >> 11) / double(1ull << 53) - 0.5;
  return dtype == DType::i32 || dtype == DType::i64 ? std::floor(x * 1e6) : x * 3;
}
void set(const Tensor& t, int64_t i, double x) {
  switch (t.dtype) {
    case DType::f32: data_as<float>(t)[i] = float(x); break;
    case DType::bf16: data_as<bf16>(t)[i] = to_bf16(float(x)); break;
    case DType::f64: data_as<double>(t)[i] = x; break;
    case DType::i32: data_as<int32_t>(t)[i] = int32_t(x); break;
    default: data_as<int64_t>(t)[i] = int64_t(x);
  }
}
double get(const Tensor& t, int64_t i) {
  switch (t.dtype) {
    case DType::f32: return data_as<float>(t)[i];
    case DType::bf16: return to_float(data_as<bf16>(t)[i]);
    case DType::f64: return data_as<double>(t)[i];
    case DType::i32: return data_as<int32_t>(t)[i];
    default: return double(data_as<int64_t>(t)[i]);
  }
}
double rounded(DType dtype, double x) {
  std::byte storage[8];
  const Tensor t = make_tensor(storage, dtype, {1});
  set(t, 0, x);
  return get(t, 0);
}
void fill(const Tensor& t, int rank, int64_t offset = 0) {
  for (int64_t i = 0; i < t.elements(); ++i) set(t, i, value(t.dtype, rank, offset + i));
}
// Element i of the reduction: in rank order, fp32 (f64 and integers in themselves), one rounding.
double reduced(DType dtype, int ranks, int64_t i, Comm::Reduce op) {
  const bool single = dtype == DType::f32 || dtype == DType::bf16;
  double sum = rounded(dtype, value(dtype, 0, i));
  for (int r = 1; r < ranks; ++r) {
    const double x = rounded(dtype, value(dtype, r, i));
    if (op == Comm::Reduce::max) sum = std::max(sum, x);
    else sum = single ? double(float(sum) + float(x)) : sum + x;
  }
  return rounded(dtype, sum);
}
void expect_equal(const Tensor& t, const std::string& what, const std::function<double(int64_t)>& wanted) {
  for (int64_t i = 0; i < t.elements(); ++i)
    if (get(t, i) != wanted(i))
      throw std::logic_error(fmt::format("{} of {} {}: element {} is {:a}, wanted {:a}", what, t.elements(),
                                         name_of(t.dtype), i, get(t, i), wanted(i)));
}

void test_all_reduce(TestRank& rank, Comm& comm, DType dtype, int64_t n) {
  for (const auto op : {Comm::Reduce::sum, Comm::Reduce::max}) {
    const Tensor t = rank.take(dtype, n, size_t(rank.rank() % 2));
    fill(t, rank.rank());
    comm.all_reduce(rank.lane(), t, op);
    rank.drain();
    expect_equal(t, "all_reduce", [&](int64_t i) { return reduced(dtype, comm.size(), i, op); });
  }
}
void test_reduce_scatter(TestRank& rank, Comm& comm, DType dtype, int64_t n, bool in_place) {
  const int64_t begin = n * comm.rank();
  const Tensor full = rank.take(dtype, n * comm.size());
  const Tensor shard = in_place ? flat_part(full, begin, begin + n) : rank.take(dtype, n);
  fill(full, rank.rank());
  comm.reduce_scatter(rank.lane(), full, shard);
  rank.drain();
  expect_equal(shard, "reduce_scatter",
               [&](int64_t i) { return reduced(dtype, comm.size(), begin + i, Comm::Reduce::sum); });
  for (int64_t i = 0; i < n * comm.size(); ++i)
    expect((in_place && i >= begin && i < begin + n) || get(full, i) == rounded(dtype, value(dtype, rank.rank(), i)),
           "reduce_scatter wrote outside of its shard");
}
void test_all_gather(TestRank& rank, Comm& comm, DType dtype, int64_t n, bool in_place) {
  const Tensor full = rank.take(dtype, n * comm.size());
  const Tensor shard = in_place ? flat_part(full, n * comm.rank(), n * (comm.rank() + 1)) : rank.take(dtype, n);
  fill(shard, rank.rank());
  comm.all_gather(rank.lane(), shard, full);
  rank.drain();
  expect_equal(full, "all_gather", [&](int64_t i) { return rounded(dtype, value(dtype, int(i / n), i % n)); });
}
// Rank r sends (r + to) % 3 rows to rank `to`.
void test_all_to_all(TestRank& rank, Comm& comm, DType dtype, int64_t width) {
  const int n = comm.size();
  const auto rows = [](int from, int to) { return int64_t((from + 2 * to) % 3); };
  Tensor from = rank.take(dtype, 2 * n * width), to = rank.take(dtype, 2 * n * width);
  from = reshaped(from, {2 * n, width});
  to = reshaped(to, {2 * n, width});
  const Tensor send = rank.take(DType::i64, n), recv = rank.take(DType::i64, n);
  fill(from, rank.rank());
  for (int r = 0; r < n; ++r) {
    data_as<int64_t>(send)[r] = rows(rank.rank(), r);
    data_as<int64_t>(recv)[r] = rows(r, rank.rank());
  }
  comm.all_to_all_v(rank.lane(), from, to, send, recv, 2 * n);
  rank.drain();
  int64_t at = 0;
  for (int r = 0; r < n; ++r) {
    int64_t begin = 0;
    for (int k = 0; k < rank.rank(); ++k) begin += rows(r, k);
    for (int64_t i = 0; i < rows(r, rank.rank()) * width; ++i, ++at)
      expect(get(to, at) == rounded(dtype, value(dtype, r, begin * width + i)), "all_to_all: wrong rows");
  }
}
// To every other rank, twice, in one group.
void test_messages(TestRank& rank, Comm& comm, DType dtype, int64_t n) {
  std::vector<Tensor> received;
  comm.begin_group(rank.lane());
  for (int turn = 0; turn < 2; ++turn)
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (peer == comm.rank()) continue;
      const Tensor t = rank.take(dtype, n);
      fill(t, rank.rank(), 10 * peer + turn);
      comm.send(rank.lane(), t, peer);
      received.push_back(rank.take(dtype, n));
      comm.recv(rank.lane(), received.back(), peer);
    }
  comm.end_group(rank.lane());
  rank.drain();
  size_t k = 0;
  for (int turn = 0; turn < 2; ++turn)
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (peer == comm.rank()) continue;
      expect_equal(received[k++], "message",
                   [&](int64_t i) { return rounded(dtype, value(dtype, peer, 10 * comm.rank() + turn + i)); });
    }
}

}  // namespace

TEST_CASE("every operation gives the bits of the reference: dtypes, ranks, odd sizes, in place or not") {
  for (const int n : kRanks)
    run_ranks(n, [&](Exchange& exchange) {
      TestRank rank(exchange, 0, size_t{8} << 20);
      const auto comm = rank.comm(n);
      for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64})
        for (const int64_t size : kSizes) {
          rank.reset();
          comm->barrier(rank.lane());
          rank.drain();  // nobody fills what others still compare
          test_all_reduce(rank, *comm, dtype, size);
          for (const bool in_place : {false, true}) {
            test_reduce_scatter(rank, *comm, dtype, size, in_place);
            test_all_gather(rank, *comm, dtype, size, in_place);
          }
          test_all_to_all(rank, *comm, dtype, size);
          test_messages(rank, *comm, dtype, std::min<int64_t>(size, 300));
        }
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
