#include "parallel/comm/shm_world.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "core/base/error.h"

namespace trainer {

using shm::Control;

namespace {

// The first reason is the cause; later ones are its consequences.
void write_reason(Control& control, std::string_view why) noexcept {
  uint32_t none = 0;
  if (!control.failure.compare_exchange_strong(none, 1)) return;
  const size_t n = std::min(why.size(), control.why.size() - 1);
  std::memcpy(control.why.data(), why.data(), n);
  control.why[n] = 0;
  control.failure.store(2);
}

std::string reason(const Control& control) {
  // Who writes it may have been killed at it.
  for (int i = 0; i < 100 && control.failure.load() == 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return control.failure.load() == 2 ? control.why.data() : "a rank failed";
}

void end_waits(Control& control) noexcept {
  for (int s = 0; s < shm::kSlots; ++s) {
    shm::Slot& slot = control.slots[size_t(s)];
    const int members = int(slot.members.load());
    if (members) slot.phase.fail();
    for (int m = 0; m < (s < shm::kAxisSlots ? members : std::min(members, 1)); ++m) {
      shm::Box& box = control.boxes[size_t(shm::box_of(s, m))];
      box.sent.fail();
      box.taken.fail();
    }
  }
}

}  // namespace

struct ShmWorld::Peers {
  int rank = 0;
  uint32_t epoch = 0;
  std::map<int, std::shared_ptr<Segment>> segments;

  Control& control(int r) const { return segments.at(r)->control(); }
  void abort(std::string_view why) noexcept {
    for (auto& [r, segment] : segments) write_reason(segment->control(), why);
    for (auto& [r, segment] : segments) end_waits(segment->control());
  }
};

ShmWorld::ShmWorld(Exchange& exchange, const SharedMemory& own, const std::vector<int>& ranks, uint32_t epoch)
    : peers_(std::make_shared<Peers>()) {
  const std::string introduction = own.introduction();
  peers_->rank = exchange.rank();
  peers_->epoch = epoch;
  Control* control = new (&own.segment()->control()) Control{};  // fresh for this epoch
  control->rank = uint32_t(exchange.rank());
  const std::vector<std::string> introductions = exchange.all_gather(introduction);
  for (const int r : ranks) {
    peers_->segments[r] = r == exchange.rank() ? own.segment() : Segment::of_peer(r, introductions.at(size_t(r)));
    check(peers_->control(r).rank == uint32_t(r), Exit::rank,
          "[shm] the memory that rank {} named is of another process", r);
  }
  check(on_host(exchange.rank()), Exit::rank, "[shm] rank {} is not in its own list of the host's ranks",
        exchange.rank());
  exchange.all_gather("mapped");  // until here the introduced objects had to live
  exchange.on_failure([peers = std::weak_ptr<Peers>(peers_)](const std::string& why) {
    if (const auto alive = peers.lock()) alive->abort(why);
  });
}

ShmWorld::~ShmWorld() {
  Control& own = peers_->control(peers_->rank);
  write_reason(own, fmt::format("rank {} has left", peers_->rank));
  end_waits(own);
}

int ShmWorld::rank() const { return peers_->rank; }
uint32_t ShmWorld::epoch() const { return peers_->epoch; }
bool ShmWorld::on_host(int rank) const { return peers_->segments.contains(rank); }
const Segment& ShmWorld::segment(int rank) const {
  const auto found = peers_->segments.find(rank);
  check(found != peers_->segments.end(), Exit::rank, "[shm] rank {} is not on the host of rank {}", rank, peers_->rank);
  return *found->second;
}
// Of the host: a pinned rank may see its own core only.
bool ShmWorld::cores_suffice() const { return long(peers_->segments.size()) <= sysconf(_SC_NPROCESSORS_ONLN); }

void ShmWorld::abort(std::string_view why) noexcept { peers_->abort(why); }
bool ShmWorld::failed() const { return peers_->control(peers_->rank).failure.load() != 0; }
void ShmWorld::throw_failure(std::string_view what, int peer) const {
  const Control& own = peers_->control(peers_->rank);
  // A peer that left while this rank waits for it has mostly failed, and the exchange is about to say why.
  for (int i = 0; i < 200 && own.failure.load() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  fail(Exit::rank, "{}: {}", what, reason(own.failure.load() != 0 ? own : peers_->control(peer)));
}

}  // namespace trainer
