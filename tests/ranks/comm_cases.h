// Every operation of a communicator of all ranks against a naive reference in rank order, bit for bit; sums of floating
// point within `slack`, for communicators that add in another order. A rank has tensors, lanes and a number: TestRank,
// or what looks like it.
#pragma once
#include <cmath>
#include <functional>

#include "core/base/hash.h"
#include "core/tensor/bf16.h"
#include "tests/ranks/ranks_comm.h"

namespace trainer {

// What element i of rank r is, in the arithmetic of the sum.
inline double value(DType dtype, int rank, int64_t i) {
  const double x = double(scramble(uint64_t(rank) << 32 | uint64_t(i)) >> 11) / double(1ull << 53) - 0.5;
  return dtype == DType::i32 || dtype == DType::i64 ? std::floor(x * 1e6) : x * 3;
}
inline void set(const Tensor& t, int64_t i, double x) {
  switch (t.dtype) {
    case DType::f32: data_as<float>(t)[i] = float(x); break;
    case DType::bf16: data_as<bf16>(t)[i] = to_bf16(float(x)); break;
    case DType::f64: data_as<double>(t)[i] = x; break;
    case DType::i32: data_as<int32_t>(t)[i] = int32_t(x); break;
    default: data_as<int64_t>(t)[i] = int64_t(x);
  }
}
inline double get(const Tensor& t, int64_t i) {
  switch (t.dtype) {
    case DType::f32: return data_as<float>(t)[i];
    case DType::bf16: return to_float(data_as<bf16>(t)[i]);
    case DType::f64: return data_as<double>(t)[i];
    case DType::i32: return data_as<int32_t>(t)[i];
    default: return double(data_as<int64_t>(t)[i]);
  }
}
inline double rounded(DType dtype, double x) {
  std::byte storage[8];
  const Tensor t = make_tensor(storage, dtype, {1});
  set(t, 0, x);
  return get(t, 0);
}
inline void fill(const Tensor& t, int rank, int64_t offset = 0) {
  for (int64_t i = 0; i < t.elements(); ++i) set(t, i, value(t.dtype, rank, offset + i));
}
// Element i of the reduction: in rank order, fp32 (f64 and integers in themselves), one rounding.
inline double reduced(DType dtype, int ranks, int64_t i, Comm::Reduce op) {
  const bool single = dtype == DType::f32 || dtype == DType::bf16;
  double sum = rounded(dtype, value(dtype, 0, i));
  for (int r = 1; r < ranks; ++r) {
    const double x = rounded(dtype, value(dtype, r, i));
    if (op == Comm::Reduce::max) sum = std::max(sum, x);
    else sum = single ? double(float(sum) + float(x)) : sum + x;
  }
  return rounded(dtype, sum);
}
inline void expect_equal(const Tensor& t, const std::string& what, const std::function<double(int64_t)>& wanted,
                         double slack = 0) {
  for (int64_t i = 0; i < t.elements(); ++i)
    if (!(std::abs(get(t, i) - wanted(i)) <= slack))
      throw std::logic_error(fmt::format("{} of {} {}: element {} is {:a}, wanted {:a}", what, t.elements(),
                                         name_of(t.dtype), i, get(t, i), wanted(i)));
}

template <class Rank>
void test_all_reduce(Rank& rank, Comm& comm, DType dtype, int64_t n, double slack = 0) {
  for (const auto op : {Comm::Reduce::sum, Comm::Reduce::max}) {
    const Tensor t = rank.take(dtype, n, size_t(rank.rank() % 2));
    fill(t, rank.rank());
    comm.all_reduce(rank.lane(), t, op);
    rank.drain();
    expect_equal(
        t, "all_reduce", [&](int64_t i) { return reduced(dtype, comm.size(), i, op); },
        op == Comm::Reduce::max ? 0 : slack);
  }
}
template <class Rank>
void test_reduce_scatter(Rank& rank, Comm& comm, DType dtype, int64_t n, bool in_place, double slack = 0) {
  const int64_t begin = n * comm.rank();
  const Tensor full = rank.take(dtype, n * comm.size());
  const Tensor shard = in_place ? flat_part(full, begin, begin + n) : rank.take(dtype, n);
  fill(full, rank.rank());
  comm.reduce_scatter(rank.lane(), full, shard);
  rank.drain();
  expect_equal(
      shard, "reduce_scatter", [&](int64_t i) { return reduced(dtype, comm.size(), begin + i, Comm::Reduce::sum); },
      slack);
  for (int64_t i = 0; i < n * comm.size(); ++i)
    expect((in_place && i >= begin && i < begin + n) || get(full, i) == rounded(dtype, value(dtype, rank.rank(), i)),
           "reduce_scatter wrote outside of its shard");
}
template <class Rank>
void test_all_gather(Rank& rank, Comm& comm, DType dtype, int64_t n, bool in_place) {
  const Tensor full = rank.take(dtype, n * comm.size());
  const Tensor shard = in_place ? flat_part(full, n * comm.rank(), n * (comm.rank() + 1)) : rank.take(dtype, n);
  fill(shard, rank.rank());
  comm.all_gather(rank.lane(), shard, full);
  rank.drain();
  expect_equal(full, "all_gather", [&](int64_t i) { return rounded(dtype, value(dtype, int(i / n), i % n)); });
}
// Rank r sends (r + to) % 3 rows to rank `to`.
template <class Rank>
void test_all_to_all(Rank& rank, Comm& comm, DType dtype, int64_t width) {
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
template <class Rank>
void test_messages(Rank& rank, Comm& comm, DType dtype, int64_t n) {
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

// Every operation, of all dtypes and these numbers of elements.
template <class Rank>
void test_every_operation(Rank& rank, Comm& comm, const std::vector<int64_t>& sizes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64})
    for (const int64_t size : sizes) {
      rank.reset();
      comm.barrier(rank.lane());
      rank.drain();  // nobody fills what others still compare
      test_all_reduce(rank, comm, dtype, size);
      for (const bool in_place : {false, true}) {
        test_reduce_scatter(rank, comm, dtype, size, in_place);
        test_all_gather(rank, comm, dtype, size, in_place);
      }
      test_all_to_all(rank, comm, dtype, size);
      test_messages(rank, comm, dtype, std::min<int64_t>(size, 300));
    }
}

}  // namespace trainer
