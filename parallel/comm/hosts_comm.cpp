#include "parallel/comm/hosts_comm.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/device/collective.h"
#include "parallel/comm/partial_sums.h"
#include "parallel/comm/shm_copy.h"

namespace trainer {

using shm::Op;

namespace {

constexpr size_t kChunkBytes = size_t{128} << 10;  // of partial sums
constexpr int64_t kWindow = 8;                     // chunks under way
constexpr int64_t kAhead = 4;                      // partial sums that may come before they are asked for
constexpr size_t kPieceBytes = size_t{256} << 10;  // of what is gathered
constexpr int64_t kPieces = 4;                     // pieces under way

GroupName local_part(const GroupName& group, const HostSpan& span) {
  const auto first = group.members.begin() + span.first;
  return {group.key, group.rank - span.first, {first, first + span.count}};
}

int host_with(const std::vector<HostSpan>& spans, int member) {
  int host = 0;
  while (member >= spans[size_t(host)].first + spans[size_t(host)].count) ++host;
  return host;
}

}  // namespace

std::vector<HostSpan> host_spans(const GroupName& group, const std::vector<int>& host_of) {
  std::vector<HostSpan> spans;
  std::vector<int> hosts;
  for (int m = 0; m < group.size(); ++m) {
    const int host = host_of[size_t(group.members[size_t(m)])];
    if (!hosts.empty() && hosts.back() == host) {
      ++spans.back().count;
      continue;
    }
    check(
        std::find(hosts.begin(), hosts.end(), host) == hosts.end(), Exit::rank,
        "[{}] rank {} is on a host of earlier ranks of the group, but ranks of another host lie between: sums go from "
        "host to host in rank order; change parallel.order, or place neighbouring ranks on each host",
        group.key, group.members[size_t(m)]);
    hosts.push_back(host);
    spans.push_back({m, 1});
  }
  return spans;
}

HostsComm::HostsComm(ShmWorld& world, Network& network, const GroupName& group, std::vector<HostSpan> spans,
                     const Place& place)
    : LaneComm(world, group, place.local.lane, place.traffic),
      spans_(std::move(spans)),
      place_(place),
      host_(host_with(spans_, group.rank)),
      posts_(world, local_part(group, spans_[size_t(host_)]), place.local),
      port_(network.port(place.own)),
      sent_(size_t(group.size())),
      received_(size_t(group.size())),
      offers_(size_t(group.size())) {
  header_.group = hash_of(group);
  header_.epoch = world.epoch();
  header_.members = uint32_t(group.size());
}

bool HostsComm::on(int host, int member) const {
  const HostSpan& span = spans_[size_t(host)];
  return member >= span.first && member < span.first + span.count;
}
int HostsComm::handler(int host, int owner) const {
  const HostSpan& span = spans_[size_t(host)];
  return on(host, owner) ? owner : span.first + owner % span.count;
}

void HostsComm::begin(const ShmMessage& m) {
  posts_.arrive(m);
  header_.op = m.op;
  header_.dtype = m.dtype;
  header_.bytes = m.bytes;
  header_.sequence = ++sequence_;
}
void HostsComm::end() {
  port_.flush(name());
  posts_.depart();
}
MessageHeader HostsComm::header(uint64_t part, size_t part_bytes) const {
  MessageHeader h = header_;
  h.part = part;
  h.part_bytes = part_bytes;
  return h;
}
Port::Transfer* HostsComm::send(int member, const MessageHeader& h, const std::byte* bytes) {
  return port_.begin_send({group().members[size_t(member)], place_.of_peers}, h, bytes);
}
Port::Transfer* HostsComm::receive(int member, const MessageHeader& h, std::byte* bytes) {
  return port_.begin_receive({group().members[size_t(member)], place_.of_peers}, h, bytes);
}
void HostsComm::wait(Port::Transfer*& t) {
  if (t) port_.wait(std::exchange(t, nullptr), name());
}

// --- sums ---

struct HostsComm::Sum {
  struct Slot {  // of a chunk under way
    Port::Transfer *partial = nullptr, *handed = nullptr, *result = nullptr, *forwarded = nullptr;
  };
  // all_reduce has one slice, the whole; reduce_scatter one of each rank, in step.
  Sum(const Call& c, Reduce op, size_t slice_bytes, int slices)
      : call(c),
        reduction{op, c.dtype},
        scatter(slices > 1),
        size(size_of(c.dtype)),
        sum_size(size_of(accumulator_of(c.dtype))),
        slice(int64_t(slice_bytes / size)),
        step(int64_t(kChunkBytes / sum_size)),
        count((slice + step - 1) / step * slices) {}
  const Call& call;
  const Reduction reduction;
  const bool scatter;           // each result goes to its owner only
  const size_t size, sum_size;  // bytes of an element, and of its sum
  const int64_t slice;          // elements of an owner
  const int64_t step, count;    // elements of a chunk, chunks
  std::array<Slot, kWindow> slots{};
  Slot& slot(const Chunk& c) { return slots[size_t(c.number % kWindow)]; }
};

HostsComm::Chunk HostsComm::chunk(const Sum& s, int64_t number) const {
  if (!s.scatter) {
    const int64_t begin = number * s.step;
    return {number, begin, std::min(s.step, s.slice - begin), int(number % size())};
  }
  const int owner = int(number % size());  // slices advance together
  const int64_t at = number / size() * s.step;
  return {number, owner * s.slice + at, std::min(s.step, s.slice - at), owner};
}

void HostsComm::run_all_reduce(const Call& c) {
  Sum s(c, c.op == Op::max ? Reduce::max : Reduce::sum, c.from_bytes, 1);
  run_sum(s);
  count_moved(moved_by_all_reduce(s.slice, c.dtype, size(), rank()));
}

void HostsComm::run_reduce_scatter(const Call& c) {
  Sum s(c, Reduce::sum, c.to_bytes, size());
  run_sum(s);
  count_moved(moved_by_scatter(int64_t(c.from_bytes), size()));
}

// All ranks follow one order of events: at time t, chunk t - kWindow ends and chunk t begins. What an event waits for
// is earlier in this order, or is the same event on a neighbouring host: nobody waits in a circle.
void HostsComm::run_sum(Sum& s) {
  staging_.resize(size_t(2 * kWindow) * kChunkBytes);
  begin({.op = s.call.op, .dtype = s.call.dtype, .bytes = s.call.from_bytes, .data = s.call.from});
  for (int64_t t = 0; t < std::min(kAhead, s.count); ++t) expect_partial(s, chunk(s, t));
  for (int64_t t = 0; t < s.count + kWindow; ++t) {
    if (t >= kWindow) take_result(s, chunk(s, t - kWindow));
    if (t < s.count) hand_on(s, chunk(s, t));
    if (t + kAhead < s.count) expect_partial(s, chunk(s, t + kAhead));
  }
  for (Sum::Slot& slot : s.slots) wait(slot.forwarded);
  end();
}

void HostsComm::expect_partial(Sum& s, const Chunk& c) {
  if (host_ == 0 || !handles(c.owner)) return;
  std::byte* to = staging_.data() + size_t(c.number % kWindow) * kChunkBytes;
  s.slot(c).partial =
      receive(handler(host_ - 1, c.owner), header(uint64_t(2 * c.number), size_t(c.elements) * s.sum_size), to);
}

void HostsComm::hand_on(Sum& s, const Chunk& c) {
  if (!handles(c.owner)) return;
  Sum::Slot& slot = s.slot(c);
  shares_.clear();
  for (int m = 0; m < posts_.size(); ++m) shares_.push_back(posts_.data(m) + size_t(c.begin) * s.size);
  wait(slot.partial);
  if (host_ == last_host()) return finish(s, c, shares_);
  const std::byte* before = host_ ? staging_.data() + size_t(c.number % kWindow) * kChunkBytes : nullptr;
  std::byte* sum = staging_.data() + size_t(kWindow + c.number % kWindow) * kChunkBytes;
  add_partial(s.reduction, before, shares_, sum, c.elements);
  slot.handed = send(handler(host_ + 1, c.owner), header(uint64_t(2 * c.number), size_t(c.elements) * s.sum_size), sum);
  const size_t bytes = size_t(c.elements) * s.size;
  const MessageHeader result = header(uint64_t(2 * c.number + 1), bytes);
  if (!s.scatter) slot.result = receive(handler(host_ + 1, c.owner), result, s.call.to + size_t(c.begin) * s.size);
  else if (c.owner == rank())
    slot.result =
        receive(handler(last_host(), c.owner), result, s.call.to + size_t(c.begin - c.owner * s.slice) * s.size);
}

// On the last host.
void HostsComm::finish(Sum& s, const Chunk& c, std::span<const std::byte* const> shares) {
  const std::byte* before = staging_.data() + size_t(c.number % kWindow) * kChunkBytes;
  const size_t bytes = size_t(c.elements) * s.size, at = size_t(c.begin) * s.size;
  std::byte* to = s.call.to + at;
  if (s.scatter)
    to = c.owner == rank() ? s.call.to + at - size_t(c.owner * s.slice) * s.size
                           : staging_.data() + size_t(kWindow + c.number % kWindow) * kChunkBytes;
  finish_partial(s.reduction, before, shares, to, c.elements);
  const MessageHeader result = header(uint64_t(2 * c.number + 1), bytes);
  if (!s.scatter) {
    share_locally(to, at, bytes);
    s.slot(c).handed = send(handler(host_ - 1, c.owner), result, to);
  } else if (c.owner != rank()) {
    s.slot(c).handed = send(c.owner, result, to);
  }
}

void HostsComm::take_result(Sum& s, const Chunk& c) {
  Sum::Slot& slot = s.slot(c);
  wait(slot.forwarded);
  wait(slot.handed);
  if (!slot.result) return;
  wait(slot.result);
  if (s.scatter) return;
  const size_t bytes = size_t(c.elements) * s.size, at = size_t(c.begin) * s.size;
  share_locally(s.call.to + at, at, bytes);
  if (host_ > 0)
    slot.forwarded = send(handler(host_ - 1, c.owner), header(uint64_t(2 * c.number + 1), bytes), s.call.to + at);
}

void HostsComm::share_locally(const std::byte* from, size_t at, size_t bytes) {
  for (int m = 0; m < posts_.size(); ++m) copy_bytes(posts_.data(m) + at, from, bytes);
}

// --- what only moves ---

void HostsComm::run_barrier(const Call& c) {
  begin({.op = c.op});
  const int hosts = last_host() + 1;
  if (local(rank()) == 0)  // after k rounds a host has heard of 2^k
    for (int step = 1; step < hosts; step *= 2) {
      const MessageHeader h = header(uint64_t(step), 0);
      Port::Transfer* in = receive(spans_[size_t((host_ + hosts - step) % hosts)].first, h, nullptr);
      Port::Transfer* out = send(spans_[size_t((host_ + step) % hosts)].first, h, nullptr);
      wait(in);
      wait(out);
    }
  end();
}

// Each shard goes once to each other host, in pieces; who takes it there passes it on.
void HostsComm::run_all_gather(const Call& c) {
  begin({.op = c.op, .dtype = c.dtype, .bytes = c.to_bytes, .data = c.from, .rows = c.to});
  struct Incoming {
    int owner;
    Port::Transfer* transfer;
  };
  std::array<std::vector<Incoming>, kPieces> incoming;
  std::array<std::vector<Port::Transfer*>, kPieces> outgoing;
  const int hosts = last_host() + 1;
  const int64_t pieces = int64_t((c.from_bytes + kPieceBytes - 1) / kPieceBytes);
  const auto bytes_of = [&](int64_t p) { return std::min(kPieceBytes, c.from_bytes - size_t(p) * kPieceBytes); };
  const auto exchange_piece = [&](int64_t p) {
    const MessageHeader h = header(uint64_t(p), bytes_of(p));
    for (int i = 1; i < hosts; ++i) {
      const int host = (host_ + i) % hosts;
      for (int m = spans_[size_t(host)].first; on(host, m); ++m) {
        if (!handles(m)) continue;
        std::byte* to = c.to + size_t(m) * c.from_bytes + size_t(p) * kPieceBytes;
        incoming[size_t(p % kPieces)].push_back({m, receive(m, h, to)});
      }
      outgoing[size_t(p % kPieces)].push_back(send(handler(host, rank()), h, c.from + size_t(p) * kPieceBytes));
    }
  };
  const auto finish_piece = [&](int64_t p) {
    for (Incoming& in : incoming[size_t(p % kPieces)]) {
      wait(in.transfer);
      const size_t at = size_t(in.owner) * c.from_bytes + size_t(p) * kPieceBytes;
      for (int m = 0; m < posts_.size(); ++m) copy_bytes(posts_.rows(m) + at, c.to + at, bytes_of(p));
    }
    for (Port::Transfer* out : outgoing[size_t(p % kPieces)]) wait(out);
    incoming[size_t(p % kPieces)].clear();
    outgoing[size_t(p % kPieces)].clear();
  };
  for (int64_t p = 0; p < std::min(kPieces, pieces); ++p) exchange_piece(p);
  const int first = spans_[size_t(host_)].first;
  for (int m = 0; m < posts_.size(); ++m)
    copy_bytes(c.to + size_t(first + m) * c.from_bytes, posts_.data(m), c.from_bytes);
  for (int64_t p = 0; p < pieces; ++p) {
    finish_piece(p);
    if (p + kPieces < pieces) exchange_piece(p + kPieces);
  }
  count_moved(moved_by_gather(int64_t(c.to_bytes), size()));
  end();
}

void HostsComm::run_all_to_all(const Call& c) {
  check_rows(c);
  begin({.op = c.op,
         .dtype = c.dtype,
         .bytes = size_t(c.max_rows) * c.row_bytes,
         .data = c.from,
         .rows = reinterpret_cast<const std::byte*>(c.send_rows)});
  std::vector<Port::Transfer*> transfers;
  std::byte *from = c.from, *to = c.to;
  for (int r = 0; r < size(); ++r) {
    const size_t sent = size_t(c.send_rows[r]) * c.row_bytes, received = size_t(c.recv_rows[r]) * c.row_bytes;
    if (here(r)) {
      const auto* rows = reinterpret_cast<const int64_t*>(posts_.rows(local(r)));
      const int64_t before = std::accumulate(rows, rows + rank(), int64_t{0});
      check(rows[rank()] == c.recv_rows[r], Exit::rank,
            "[{}] all_to_all: rank {} sends {} rows to rank {}, which expects {}", name(), r, rows[rank()], rank(),
            c.recv_rows[r]);
      copy_bytes(to, posts_.data(local(r)) + size_t(before) * c.row_bytes, received);
    } else {
      transfers.push_back(receive(r, header(0, received), to));
      transfers.push_back(send(r, header(0, sent), from));
    }
    if (r != rank()) count_moved(int64_t(received));
    from += sent;
    to += received;
  }
  for (Port::Transfer*& t : transfers) wait(t);
  end();
}

MessageHeader HostsComm::message_header(const Call& c, Op op, uint32_t sequence) const {
  MessageHeader h = header(0, c.from_bytes);
  h.op = op;
  h.dtype = c.dtype;
  h.bytes = c.from_bytes;
  h.sequence = sequence;
  return h;
}

void HostsComm::run_offer(const Call& c) {
  if (here(c.peer))
    return posts_.offer(local(c.peer), {.op = Op::send, .dtype = c.dtype, .bytes = c.from_bytes, .data = c.from});
  const MessageHeader h = message_header(c, Op::send, ++sent_[size_t(c.peer)]);
  offers_[size_t(c.peer)].push_back(send(c.peer, h, c.from));
}
void HostsComm::run_await_taken(const Call& c) {
  if (here(c.peer)) return posts_.await_taken(local(c.peer), {.op = Op::send, .dtype = c.dtype, .bytes = c.from_bytes});
  auto& offers = offers_[size_t(c.peer)];
  wait(offers.front());
  offers.pop_front();
  port_.flush(name());
}
void HostsComm::run_receive(const Call& c) {
  count_moved(int64_t(c.to_bytes));
  if (here(c.peer)) {
    const int from = local(c.peer);
    copy_bytes(c.to, posts_.take(from, {.op = Op::recv, .dtype = c.dtype, .bytes = c.to_bytes}), c.to_bytes);
    return posts_.give_back(from);
  }
  Port::Transfer* t = receive(c.peer, message_header(c, Op::recv, ++received_[size_t(c.peer)]), c.to);
  wait(t);
}

}  // namespace trainer
