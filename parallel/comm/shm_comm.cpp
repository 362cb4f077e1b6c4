#include "parallel/comm/shm_comm.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "core/base/error.h"
#include "core/device/collective.h"
#include "parallel/comm/shm_copy.h"

namespace trainer {

using shm::Op;

struct ShmComm::Call {
  ShmComm* comm = nullptr;
  void (ShmComm::*run)(const Call&) = nullptr;
  Op op = Op::none;
  DType dtype = DType::u8;
  int peer = 0;
  std::byte *from = nullptr, *to = nullptr;
  size_t from_bytes = 0, to_bytes = 0;
  // all_to_all_v
  const int64_t *send_rows = nullptr, *recv_rows = nullptr;
  size_t row_bytes = 0;
  int64_t max_rows = 0;
};

namespace {

bool overlap(const Tensor& a, const Tensor& b) { return a.data < b.data + b.bytes() && b.data < a.data + a.bytes(); }

}  // namespace

void ShmComm::issue(Stream& stream, void (ShmComm::*run)(const Call&), const Call& call) {
  Call c = call;
  c.comm = this;
  c.run = run;
  const auto on_lane = [](Stream&, const void* args) {
    const Call& c = *static_cast<const Call*>(args);
    const auto begin = std::chrono::steady_clock::now();
    try {
      (c.comm->*c.run)(c);
      const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - begin;
      c.comm->traffic_.nanoseconds.fetch_add(spent.count(), std::memory_order_relaxed);
    } catch (const std::exception& e) {
      c.comm->posts_.world().abort(e.what());  // the others wait for this rank
      throw;
    }
  };
  stream.submit(on_lane, &c, sizeof c);
}

void ShmComm::check_tensor(Op op, const Tensor& t) const {
  const auto arena = posts_.arena();
  check(t.dense() && t.data >= arena.data() && t.data + t.bytes() <= arena.data() + arena.size(), Exit::rank,
        "[{}] {}: wanted a dense tensor in the rank's arena of {} bytes, found {} bytes of {} {}", posts_.name(),
        shm::name_of(op), arena.size(), t.bytes(), name_of(t.dtype), t.dense() ? "outside of it" : "with strided rows");
}
void ShmComm::check_peer(Op op, int peer) const {
  check(peer >= 0 && peer < size() && peer != rank(), Exit::rank, "[{}] {}: wanted another rank of 0 to {}, found {}",
        posts_.name(), shm::name_of(op), size() - 1, peer);
}
ShmComm::Call ShmComm::call_of(Op op, const Tensor& from, const Tensor& to) const {
  check_tensor(op, from);
  check_tensor(op, to);
  check(from.dtype == to.dtype, Exit::rank, "[{}] {}: from {} to {}", posts_.name(), shm::name_of(op),
        name_of(from.dtype), name_of(to.dtype));
  Call c;
  c.op = op;
  c.dtype = from.dtype;
  c.from = from.data;
  c.to = to.data;
  c.from_bytes = from.bytes();
  c.to_bytes = to.bytes();
  return c;
}

void ShmComm::all_gather(Stream& stream, Tensor shard, Tensor full) {
  const Call c = call_of(Op::all_gather, shard, full);
  check(full.elements() == size() * shard.elements(), Exit::rank, "[{}] all_gather of {} elements into {}, {} ranks",
        posts_.name(), shard.elements(), full.elements(), size());
  check(c.from == c.to + size_t(rank()) * c.from_bytes || !overlap(shard, full), Exit::rank,
        "[{}] all_gather: the shard overlaps another rank's slice", posts_.name());
  issue(stream, &ShmComm::run_all_gather, c);
}
void ShmComm::reduce_scatter(Stream& stream, Tensor full, Tensor shard) {
  const Call c = call_of(Op::reduce_scatter, full, shard);
  check_reduces({Reduce::sum, full.dtype});
  check(full.elements() == size() * shard.elements(), Exit::rank,
        "[{}] reduce_scatter of {} elements into {}, {} ranks", posts_.name(), full.elements(), shard.elements(),
        size());
  check(c.to == c.from + size_t(rank()) * c.to_bytes || !overlap(shard, full), Exit::rank,
        "[{}] reduce_scatter: the shard overlaps another rank's slice", posts_.name());
  issue(stream, &ShmComm::run_reduce_scatter, c);
}
void ShmComm::all_reduce(Stream& stream, Tensor t, Reduce op) {
  check_reduces({op, t.dtype});
  issue(stream, &ShmComm::run_all_reduce, call_of(op == Reduce::max ? Op::max : Op::sum, t, t));
}
void ShmComm::all_to_all_v(Stream& stream, Tensor from, Tensor to, Tensor send_rows, Tensor recv_rows,
                           int64_t max_rows) {
  Call c = call_of(Op::all_to_all, from, to);
  for (const Tensor& counts : {send_rows, recv_rows}) {
    check_tensor(Op::all_to_all, counts);
    check(counts.dtype == DType::i64 && counts.elements() == size(), Exit::rank,
          "[{}] all_to_all: wanted {} row counts of i64, found {} of {}", posts_.name(), size(), counts.elements(),
          name_of(counts.dtype));
  }
  check(from.row_elements() == to.row_elements() && max_rows <= from.rows() && max_rows <= to.rows(), Exit::rank,
        "[{}] all_to_all: at most {} rows, from {} of {} elements to {} of {}", posts_.name(), max_rows, from.rows(),
        from.row_elements(), to.rows(), to.row_elements());
  c.send_rows = data_as<int64_t>(send_rows);
  c.recv_rows = data_as<int64_t>(recv_rows);
  c.row_bytes = size_t(from.row_elements()) * size_of(from.dtype);
  c.max_rows = max_rows;
  issue(stream, &ShmComm::run_all_to_all, c);
}
void ShmComm::barrier(Stream& stream) {
  Call c;
  c.op = Op::barrier;
  issue(stream, &ShmComm::run_barrier, c);
}
void ShmComm::abort() noexcept {
  try {
    posts_.world().abort(fmt::format("[{}] rank {} aborted", posts_.name(), posts_.world().rank()));
  } catch (...) { posts_.world().abort("aborted"); }
}

void ShmComm::send(Stream& stream, Tensor t, int to) {
  check_tensor(Op::send, t);
  check_peer(Op::send, to);
  pending_.push_back({true, to, t});
  if (!grouping_) end_group(stream);
}
void ShmComm::recv(Stream& stream, Tensor t, int from) {
  check_tensor(Op::recv, t);
  check_peer(Op::recv, from);
  pending_.push_back({false, from, t});
  if (!grouping_) end_group(stream);
}
void ShmComm::begin_group(Stream&) { grouping_ = true; }
void ShmComm::end_group(Stream& stream) {
  grouping_ = false;
  // In rounds of one message per peer and direction.
  while (!pending_.empty()) {
    const auto first_of_its_kind = [&](const Pending& p) {
      return std::find_if(pending_.begin(), pending_.end(), [&](const Pending& q) {
               return q.sends == p.sends && q.peer == p.peer;
             }) == pending_.begin() + (&p - pending_.data());
    };
    std::vector<Pending> round, later;
    for (const Pending& p : pending_) (first_of_its_kind(p) ? round : later).push_back(p);
    issue_messages(stream, round);
    pending_ = std::move(later);
  }
}
void ShmComm::issue_messages(Stream& stream, std::span<const Pending> round) {
  const auto each = [&](bool sends, void (ShmComm::*run)(const Call&)) {
    for (const Pending& p : round) {
      if (p.sends != sends) continue;
      Call c = call_of(sends ? Op::send : Op::recv, p.tensor, p.tensor);
      c.peer = p.peer;
      issue(stream, run, c);
    }
  };
  each(true, &ShmComm::run_offer);
  each(false, &ShmComm::run_receive);
  each(true, &ShmComm::run_await_taken);
}

// --- on the lane ---

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
  const int64_t sent = std::accumulate(c.send_rows, c.send_rows + size(), int64_t{0});
  const int64_t received = std::accumulate(c.recv_rows, c.recv_rows + size(), int64_t{0});
  check(sent <= c.max_rows && received <= c.max_rows, Exit::rank,
        "[{}] all_to_all: rank {} sends {} rows and receives {}, the plan has room for {}", posts_.name(), rank(), sent,
        received, c.max_rows);
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
