#include "parallel/comm/shm_comm.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/device/collective.h"
#include "parallel/comm/shm_copy.h"

namespace trainer {

using shm::Op;

void ShmComm::run_barrier(const Call& c) {
  posts_.arrive({.op = c.op});
  posts_.depart();
}

void ShmComm::run_all_gather(const Call& c) {
  posts_.arrive({.op = c.op, .dtype = c.dtype, .bytes = c.to_bytes, .data = c.from});
  for (int i = 1; i <= size(); ++i) {  // each begins with another neighbour, and ends with its own
    const int r = (rank() + i) % size();
    copy_bytes(c.to + size_t(r) * c.from_bytes, posts_.data(r), c.from_bytes);
  }
  count_moved(moved_by_gather(int64_t(c.to_bytes), size()));
  posts_.depart();
}

void ShmComm::run_reduce_scatter(const Call& c) {
  posts_.arrive({.op = c.op, .dtype = c.dtype, .bytes = c.from_bytes, .data = c.from});
  parts_.clear();
  for (int r = 0; r < size(); ++r) parts_.push_back(posts_.data(r) + size_t(rank()) * c.to_bytes);
  reduce({Reduce::sum, c.dtype}, parts_, {&c.to, 1}, int64_t(c.to_bytes / size_of(c.dtype)));
  count_moved(moved_by_scatter(int64_t(c.from_bytes), size()));
  posts_.depart();
}

void ShmComm::run_all_reduce(const Call& c) {
  posts_.arrive({.op = c.op, .dtype = c.dtype, .bytes = c.from_bytes, .data = c.from});
  const int64_t n = int64_t(c.from_bytes / size_of(c.dtype));
  const auto [begin, end] = own_slice(n, size(), rank());
  parts_.clear();
  for (int r = 0; r < size(); ++r) parts_.push_back(posts_.data(r) + size_t(begin) * size_of(c.dtype));
  reduce({c.op == Op::max ? Reduce::max : Reduce::sum, c.dtype}, parts_, parts_, end - begin);
  count_moved(moved_by_all_reduce(n, c.dtype, size(), rank()));
  posts_.depart();
}

void ShmComm::run_all_to_all(const Call& c) {
  check_rows(c);
  posts_.arrive({.op = c.op,
                 .dtype = c.dtype,
                 .bytes = size_t(c.max_rows) * c.row_bytes,
                 .data = c.from,
                 .rows = reinterpret_cast<const std::byte*>(c.send_rows)});
  std::byte* to = c.to;
  for (int r = 0; r < size(); ++r) {
    const auto* rows = reinterpret_cast<const int64_t*>(posts_.rows(r));
    const int64_t before = std::accumulate(rows, rows + rank(), int64_t{0});
    check(rows[rank()] == c.recv_rows[r], Exit::rank,
          "[{}] all_to_all: rank {} sends {} rows to rank {}, which expects {}", posts_.name(), r, rows[rank()], rank(),
          c.recv_rows[r]);
    const size_t bytes = size_t(rows[rank()]) * c.row_bytes;
    copy_bytes(to, posts_.data(r) + size_t(before) * c.row_bytes, bytes);
    if (r != rank()) count_moved(int64_t(bytes));
    to += bytes;
  }
  posts_.depart();
}

void ShmComm::run_offer(const Call& c) {
  posts_.offer(c.peer, {.op = Op::send, .dtype = c.dtype, .bytes = c.from_bytes, .data = c.from});
}
void ShmComm::run_await_taken(const Call& c) {
  posts_.await_taken(c.peer, {.op = Op::send, .dtype = c.dtype, .bytes = c.from_bytes});
}
void ShmComm::run_receive(const Call& c) {
  copy_bytes(c.to, posts_.take(c.peer, {.op = Op::recv, .dtype = c.dtype, .bytes = c.to_bytes}), c.to_bytes);
  posts_.give_back(c.peer);
  count_moved(int64_t(c.to_bytes));
}

}  // namespace trainer
