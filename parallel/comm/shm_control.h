// What the ranks of a host tell each other through memory: the control block at the head of every rank's segment.
//
// A rank writes into its own block only (but for failures, which anybody may write into all); peers read it and sleep
// on its words. Every wait of the shm backend is a wait for one word.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "core/device/comm.h"

namespace trainer::shm {

inline constexpr size_t kControlBytes = size_t{2} << 20;
inline constexpr int kMaxMembers = 64;  // of a group
inline constexpr int kMaxStages = 64;
inline constexpr int kAxisSlots = kAxes * kLanes;
inline constexpr int kSlots = kAxisSlots + 4 * kMaxStages;
inline constexpr int kBoxes = kAxisSlots * kMaxMembers + 4 * kMaxStages;  // a pipe has one peer

// A count that others wait for, shared between processes. It moves in steps of two and wraps; bit 0 says that nobody
// must wait for it any longer. As the bit is in the word that a sleeper compares, no wake-up can be lost.
class Word {
 public:
  static constexpr uint32_t kStep = 2;
  enum class Result { reached, failed, timeout };

  uint32_t count() const { return value_.load(std::memory_order_acquire) & ~1u; }
  bool reached(uint32_t target) const { return is_at(value_.load(std::memory_order_acquire), target); }
  void advance();        // everything written before is seen by whoever sees the new count; wakes the sleepers
  void fail() noexcept;  // wakes the sleepers
  // Spins a while, then sleeps. Reached wins over failed: what was done before a failure counts.
  Result await(uint32_t target, int spins, std::chrono::milliseconds limit);

 private:
  static bool is_at(uint32_t value, uint32_t target) { return int32_t((value & ~1u) - target) >= 0; }
  void wake() noexcept;
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};  // a process killed in its sleep leaves one: it costs system calls, no more
};

enum class Op : uint8_t { none, barrier, all_gather, reduce_scatter, sum, max, all_to_all, send, recv };
std::string_view name_of(Op);

// What a rank says it does. Plain words, published by the count of the Word beside them.
struct Cell {
  std::atomic<uint64_t> group;   // hash of the group's key and members
  std::atomic<uint64_t> number;  // epoch << 32 | sequence
  std::atomic<uint64_t> kind;    // Op | DType << 8 | size of the group << 16
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> offset;  // of the tensor in the poster's arena
  std::atomic<uint64_t> rows;    // all_to_all: of the row counts
};

// Written when a wait takes long, so that two ranks that wait for each other find it out.
struct Waiting {
  std::atomic<uint64_t> what;  // Op | DType << 8 | Kind << 16 | box << 24 | rank waited for << 32; 0: does not wait
  std::atomic<uint64_t> target;
  std::atomic<uint64_t> bytes;
};

// Of a communicator: `phase` is 2k-1 when operation k was posted and 2k when this rank has done its part of it.
struct alignas(128) Slot {
  Word phase;
  Cell post;
  Waiting waiting;
  std::atomic<uint32_t> members;  // of whoever sleeps here; 0: nobody ever has
};

// Of a communicator and one peer: messages this rank has sent to it, and messages of it that this rank has taken.
struct alignas(64) Box {
  Word sent, taken;
  Cell post;
};

struct Control {
  std::atomic<uint32_t> rank;
  std::atomic<uint32_t> failure;  // 0: none; 1: its text is being written; 2: it is there
  std::array<char, 1000> why;
  std::array<Slot, kSlots> slots;
  std::array<Box, kBoxes> boxes;
};
static_assert(sizeof(Control) <= kControlBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

inline int axis_slot(Axis axis, Lane lane) { return int(axis) * kLanes + int(lane); }
// Of a rank whose pipe leads to (outgoing) or comes from stage `peer`.
inline int pipe_slot(int peer, bool outgoing, bool gradient) {
  return kAxisSlots + peer * 4 + (outgoing ? 2 : 0) + (gradient ? 1 : 0);
}
inline int box_of(int slot, int member) {
  return slot < kAxisSlots ? slot * kMaxMembers + member : kAxisSlots * kMaxMembers + slot - kAxisSlots;
}

}  // namespace trainer::shm
