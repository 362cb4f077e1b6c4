#include "parallel/comm/lane_comm.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "core/base/error.h"
#include "parallel/comm/shm_reduce.h"

namespace trainer {

using shm::Op;

namespace {

bool overlap(const Tensor& a, const Tensor& b) { return a.data < b.data + b.bytes() && b.data < a.data + a.bytes(); }

}  // namespace

void LaneComm::issue(Stream& stream, void (LaneComm::*run)(const Call&), const Call& call) {
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
      c.comm->world_.abort(e.what());  // the others wait for this rank
      throw;
    }
  };
  stream.submit(on_lane, &c, sizeof c);
}

void LaneComm::check_tensor(Op op, const Tensor& t) const {
  const auto arena = world_.segment(world_.rank()).arena();
  check(t.dense() && t.data >= arena.data() && t.data + t.bytes() <= arena.data() + arena.size(), Exit::rank,
        "[{}] {}: wanted a dense tensor in the rank's arena of {} bytes, found {} bytes of {} {}", name(),
        shm::name_of(op), arena.size(), t.bytes(), name_of(t.dtype), t.dense() ? "outside of it" : "with strided rows");
}
void LaneComm::check_peer(Op op, int peer) const {
  check(peer >= 0 && peer < size() && peer != rank(), Exit::rank, "[{}] {}: wanted another rank of 0 to {}, found {}",
        name(), shm::name_of(op), size() - 1, peer);
}
LaneComm::Call LaneComm::call_of(Op op, const Tensor& from, const Tensor& to) const {
  check_tensor(op, from);
  check_tensor(op, to);
  check(from.dtype == to.dtype, Exit::rank, "[{}] {}: from {} to {}", name(), shm::name_of(op), name_of(from.dtype),
        name_of(to.dtype));
  Call c;
  c.op = op;
  c.dtype = from.dtype;
  c.from = from.data;
  c.to = to.data;
  c.from_bytes = from.bytes();
  c.to_bytes = to.bytes();
  return c;
}

void LaneComm::all_gather(Stream& stream, Tensor shard, Tensor full) {
  const Call c = call_of(Op::all_gather, shard, full);
  check(full.elements() == size() * shard.elements(), Exit::rank, "[{}] all_gather of {} elements into {}, {} ranks",
        name(), shard.elements(), full.elements(), size());
  check(c.from == c.to + size_t(rank()) * c.from_bytes || !overlap(shard, full), Exit::rank,
        "[{}] all_gather: the shard overlaps another rank's slice", name());
  issue(stream, &LaneComm::run_all_gather, c);
}
void LaneComm::reduce_scatter(Stream& stream, Tensor full, Tensor shard) {
  const Call c = call_of(Op::reduce_scatter, full, shard);
  check_reduces({Reduce::sum, full.dtype});
  check(full.elements() == size() * shard.elements(), Exit::rank,
        "[{}] reduce_scatter of {} elements into {}, {} ranks", name(), full.elements(), shard.elements(), size());
  check(c.to == c.from + size_t(rank()) * c.to_bytes || !overlap(shard, full), Exit::rank,
        "[{}] reduce_scatter: the shard overlaps another rank's slice", name());
  issue(stream, &LaneComm::run_reduce_scatter, c);
}
void LaneComm::all_reduce(Stream& stream, Tensor t, Reduce op) {
  check_reduces({op, t.dtype});
  issue(stream, &LaneComm::run_all_reduce, call_of(op == Reduce::max ? Op::max : Op::sum, t, t));
}
void LaneComm::all_to_all_v(Stream& stream, Tensor from, Tensor to, Tensor send_rows, Tensor recv_rows,
                            int64_t max_rows) {
  Call c = call_of(Op::all_to_all, from, to);
  for (const Tensor& counts : {send_rows, recv_rows}) {
    check_tensor(Op::all_to_all, counts);
    check(counts.dtype == DType::i64 && counts.elements() == size(), Exit::rank,
          "[{}] all_to_all: wanted {} row counts of i64, found {} of {}", name(), size(), counts.elements(),
          name_of(counts.dtype));
  }
  check(from.row_elements() == to.row_elements() && max_rows <= from.rows() && max_rows <= to.rows(), Exit::rank,
        "[{}] all_to_all: at most {} rows, from {} of {} elements to {} of {}", name(), max_rows, from.rows(),
        from.row_elements(), to.rows(), to.row_elements());
  c.send_rows = data_as<int64_t>(send_rows);
  c.recv_rows = data_as<int64_t>(recv_rows);
  c.row_bytes = size_t(from.row_elements()) * size_of(from.dtype);
  c.max_rows = max_rows;
  issue(stream, &LaneComm::run_all_to_all, c);
}
void LaneComm::barrier(Stream& stream) {
  Call c;
  c.op = Op::barrier;
  issue(stream, &LaneComm::run_barrier, c);
}
void LaneComm::abort() noexcept {
  try {
    world_.abort(fmt::format("[{}] rank {} aborted", name(), world_.rank()));
  } catch (...) { world_.abort("aborted"); }
}

void LaneComm::send(Stream& stream, Tensor t, int to) {
  check_tensor(Op::send, t);
  check_peer(Op::send, to);
  pending_.push_back({true, to, t});
  if (!grouping_) end_group(stream);
}
void LaneComm::recv(Stream& stream, Tensor t, int from) {
  check_tensor(Op::recv, t);
  check_peer(Op::recv, from);
  pending_.push_back({false, from, t});
  if (!grouping_) end_group(stream);
}
void LaneComm::begin_group(Stream&) { grouping_ = true; }
void LaneComm::end_group(Stream& stream) {
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
void LaneComm::issue_messages(Stream& stream, std::span<const Pending> round) {
  const auto each = [&](bool sends, void (LaneComm::*run)(const Call&)) {
    for (const Pending& p : round) {
      if (p.sends != sends) continue;
      Call c = call_of(sends ? Op::send : Op::recv, p.tensor, p.tensor);
      c.peer = p.peer;
      issue(stream, run, c);
    }
  };
  each(true, &LaneComm::run_offer);
  each(false, &LaneComm::run_receive);
  each(true, &LaneComm::run_await_taken);
}

void LaneComm::check_rows(const Call& c) const {
  const int64_t sent = std::accumulate(c.send_rows, c.send_rows + size(), int64_t{0});
  const int64_t received = std::accumulate(c.recv_rows, c.recv_rows + size(), int64_t{0});
  check(sent <= c.max_rows && received <= c.max_rows, Exit::rank,
        "[{}] all_to_all: rank {} sends {} rows and receives {}, the plan has room for {}", name(), rank(), sent,
        received, c.max_rows);
}

}  // namespace trainer
