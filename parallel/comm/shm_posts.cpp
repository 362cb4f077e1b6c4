#include "parallel/comm/shm_posts.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace trainer {

using shm::Cell, shm::Op, shm::Waiting, shm::Word;

namespace {

constexpr auto kPatience = std::chrono::milliseconds(100);
constexpr uint64_t kNowhere = UINT64_MAX;
constexpr auto kRelaxed = std::memory_order_relaxed;

// The phase is 2k-1 at the arrival and 2k at the departure of operation k.
uint32_t operation_at(uint32_t phase) { return (phase + Word::kStep) / (2 * Word::kStep); }

std::string describe(uint64_t op, uint64_t dtype, uint64_t bytes) {
  const std::string_view name = name_of(Op(op));
  if (Op(op) == Op::barrier || Op(op) == Op::none) return std::string(name);
  return fmt::format("{} of {} bytes {}", name, bytes, name_of(DType(dtype)));
}

}  // namespace

std::string describe(const ShmMessage& m) { return describe(uint64_t(m.op), uint64_t(m.dtype), m.bytes); }

uint64_t hash_of(const GroupName& group) {
  uint64_t h = hash_text(group.key);
  for (const int r : group.members) h = scramble(h ^ uint64_t(r));
  return h;
}

ShmPosts::ShmPosts(ShmWorld& world, GroupName group, ShmPlace place)
    : world_(world),
      group_(std::move(group)),
      place_(std::move(place)),
      hash_(hash_of(group_)),
      data_(size_t(group_.size())),
      rows_(size_t(group_.size())) {
  check(size() <= shm::kMaxMembers, Exit::rank, "[{}] {} ranks of one host, at most {} can form a group", name(),
        size(), shm::kMaxMembers);
  for (const int r : group_.members) {
    const Segment& segment = world_.segment(r);
    members_.push_back({r, &segment.control(), segment.arena()});
  }
  // Before anything is waited for: a failure ends the waits on slots that somebody uses.
  for (int m = 0; m < size(); ++m) {
    auto& members = slot(m).members;
    for (uint32_t seen = members; seen < uint32_t(size()) && !members.compare_exchange_weak(seen, uint32_t(size()));) {}
  }
}

std::string ShmPosts::name() const { return fmt::format("{}, lane {}", group_.key, place_.lane); }
shm::Slot& ShmPosts::slot(int member) const {
  return members_[size_t(member)].control->slots[size_t(member == rank() ? place_.own : place_.of_peers)];
}
shm::Box& ShmPosts::box(int member, int peer) const {
  const int slot = member == rank() ? place_.own : place_.of_peers;
  return members_[size_t(member)].control->boxes[size_t(shm::box_of(slot, peer))];
}
Word& ShmPosts::word(Kind kind, int member, int peer) const {
  if (kind == Kind::phase) return slot(member).phase;
  return kind == Kind::sent ? box(member, peer).sent : box(member, peer).taken;
}

void ShmPosts::write(Cell& cell, const ShmMessage& m, uint32_t sequence) const {
  const std::byte* base = members_[size_t(rank())].arena.data();
  cell.group.store(hash_, kRelaxed);
  cell.number.store(uint64_t(world_.epoch()) << 32 | sequence, kRelaxed);
  cell.kind.store(uint64_t(m.op) | uint64_t(m.dtype) << 8 | uint64_t(size()) << 16, kRelaxed);
  cell.bytes.store(m.bytes, kRelaxed);
  cell.offset.store(m.data ? uint64_t(m.data - base) : kNowhere, kRelaxed);
  cell.rows.store(m.rows ? uint64_t(m.rows - base) : kNowhere, kRelaxed);
}

void ShmPosts::compare(int member, const Cell& cell, const ShmMessage& own, uint32_t sequence) const {
  const uint64_t kind = cell.kind.load(kRelaxed), bytes = cell.bytes.load(kRelaxed),
                 number = cell.number.load(kRelaxed);
  const Op expected = own.op == Op::recv ? Op::send : own.op;
  const bool same_group = cell.group.load(kRelaxed) == hash_;
  if (same_group && number == (uint64_t(world_.epoch()) << 32 | sequence) && Op(kind & 0xff) == expected &&
      DType(kind >> 8 & 0xff) == own.dtype && bytes == own.bytes)
    return;
  std::string theirs = describe(kind & 0xff, kind >> 8 & 0xff, bytes);
  if (!same_group) theirs += fmt::format(" in another group, of {} ranks", kind >> 16);
  if (uint32_t(number) != sequence) theirs += fmt::format(" as its operation {}", uint32_t(number));
  if (number >> 32 != world_.epoch()) theirs += fmt::format(" of epoch {}", number >> 32);
  refuse(own, member, theirs, sequence);
}

void ShmPosts::refuse(const ShmMessage& own, int member, const std::string& theirs, uint32_t sequence) const {
  std::pair<int, std::string> a{world_.rank(), describe(own)}, b{members_[size_t(member)].rank, theirs};
  if (b.first < a.first) std::swap(a, b);  // both ranks say the same
  fail(Exit::rank, "[{}] operation {}: rank {} does {}, rank {} does {}; the ranks do not follow one plan", name(),
       sequence, a.first, a.second, b.first, b.second);
}

std::byte* ShmPosts::locate(int member, uint64_t offset) const {
  const auto& arena = members_[size_t(member)].arena;
  if (offset == kNowhere) return nullptr;
  check(offset < arena.size(), Exit::rank, "[{}] rank {} posted offset {} in an arena of {} bytes", name(),
        members_[size_t(member)].rank, offset, arena.size());
  return arena.data() + offset;
}

void ShmPosts::await(Kind kind, int member, uint32_t target, const ShmMessage& m) {
  Waiting& waiting = slot(rank()).waiting;
  Word& awaited = word(kind, member, rank());
  for (int late = 0;;) {
    switch (awaited.await(target, place_.spins, kPatience)) {
      case Word::Result::reached:
        if (late) waiting.what.store(0, std::memory_order_release);
        return;
      case Word::Result::failed:
        world_.throw_failure(fmt::format("[{}] {}", name(), describe(m)), members_[size_t(member)].rank);
        break;
      case Word::Result::timeout: break;
    }
    if (late == 0) {
      waiting.target.store(target, kRelaxed);
      waiting.bytes.store(m.bytes, kRelaxed);
      waiting.what.store(uint64_t(m.op) | uint64_t(m.dtype) << 8 | uint64_t(kind) << 16 | uint64_t(rank()) << 24 |
                             uint64_t(members_[size_t(member)].rank) << 32,
                         std::memory_order_release);
    }
    late = waits_for_this(member) ? late + 1 : 1;
    if (late < 3) continue;  // seen twice, a tenth of a second apart: not just a slow start
    const Waiting& theirs = slot(member).waiting;
    const uint64_t what = theirs.what.load(std::memory_order_acquire);
    refuse(m, member, describe(what & 0xff, what >> 8 & 0xff, theirs.bytes.load(kRelaxed)),
           kind == Kind::phase ? operation_at(target) : target / Word::kStep);
  }
}

bool ShmPosts::waits_for_this(int member) const {
  const Waiting& theirs = slot(member).waiting;
  const uint64_t what = theirs.what.load(std::memory_order_acquire);
  if (what == 0 || int(what >> 32) != world_.rank()) return false;
  const Kind kind = Kind(what >> 16 & 0xff);
  const int their_box = int(what >> 24 & 0xff) % shm::kMaxMembers;
  return !word(kind, rank(), their_box).reached(uint32_t(theirs.target.load(kRelaxed)));
}

void ShmPosts::arrive(const ShmMessage& m) {
  if (world_.failed()) world_.throw_failure(fmt::format("[{}] {}", name(), describe(m)), world_.rank());
  shm::Slot& own = slot(rank());
  const uint32_t target = own.phase.count() + Word::kStep, sequence = operation_at(target);
  write(own.post, m, sequence);
  own.phase.advance();
  for (int i = 0; i < size(); ++i) {
    const int member = (rank() + i) % size();
    if (i > 0) {
      await(Kind::phase, member, target, m);
      compare(member, slot(member).post, m, sequence);
    }
    data_[size_t(member)] = locate(member, slot(member).post.offset.load(kRelaxed));
    rows_[size_t(member)] = locate(member, slot(member).post.rows.load(kRelaxed));
  }
}

void ShmPosts::depart() {
  shm::Slot& own = slot(rank());
  const uint64_t kind = own.post.kind.load(kRelaxed);
  const ShmMessage m{.op = Op(kind & 0xff), .dtype = DType(kind >> 8 & 0xff), .bytes = own.post.bytes.load(kRelaxed)};
  const uint32_t target = own.phase.count() + Word::kStep;
  own.phase.advance();
  for (int i = 1; i < size(); ++i) await(Kind::phase, (rank() + i) % size(), target, m);
}

void ShmPosts::offer(int to, const ShmMessage& m) {
  if (world_.failed()) world_.throw_failure(fmt::format("[{}] {}", name(), describe(m)), world_.rank());
  shm::Box& own = box(rank(), to);
  write(own.post, m, (own.sent.count() + Word::kStep) / Word::kStep);
  own.sent.advance();
}
void ShmPosts::await_taken(int to, const ShmMessage& m) { await(Kind::taken, to, box(rank(), to).sent.count(), m); }

std::byte* ShmPosts::take(int from, const ShmMessage& expected) {
  const uint32_t target = box(rank(), from).taken.count() + Word::kStep;
  await(Kind::sent, from, target, expected);
  const Cell& post = box(from, rank()).post;
  compare(from, post, expected, target / Word::kStep);
  return locate(from, post.offset.load(kRelaxed));
}
void ShmPosts::give_back(int from) { box(rank(), from).taken.advance(); }

}  // namespace trainer
