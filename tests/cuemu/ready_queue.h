// Which thread of a block runs next: CUDA promises nothing, so every order is allowed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/cuemu/config.h"
#include "tests/cuemu/random.h"

namespace cuemu {

class ReadyQueue {
 public:
  void start(Order order, uint64_t seed, uint64_t block, unsigned warps) {
    order_ = order;
    random_.seed(seed, block);
    by_priority_ = order == Order::random && (random_.next() & 1);
    entries_.clear();
    head_ = 0;
    if (!by_priority_) return;
    constexpr uint32_t kAboveDemoted = 1u << 31;
    priorities_.resize(warps);
    for (uint32_t& p : priorities_) p = random_.next() | kAboveDemoted;
  }
  // Once, when every thread of the block is in.
  void all_in() {
    if (order_ == Order::reverse) std::reverse(entries_.begin(), entries_.end());
  }
  void push(uint32_t thread, uint32_t warp) {
    if (!by_priority_) return entries_.push_back({0, thread, warp});
    entries_.push_back({uint64_t(priorities_[warp]) << 32 | random_.next(), thread, warp});
    std::push_heap(entries_.begin(), entries_.end());
  }
  // False when no thread can run.
  bool pop(uint32_t& thread) {
    if (head_ == entries_.size()) return false;
    if (by_priority_) {
      std::pop_heap(entries_.begin(), entries_.end());
      thread = entries_.back().thread;
      constexpr uint32_t kOneIn = 1024;
      if (random_.next() % kOneIn == 0) priorities_[entries_.back().warp] = random_.next() >> 2;
      entries_.pop_back();
    } else if (order_ == Order::random) {
      Entry& chosen = entries_[random_.below(entries_.size())];
      thread = chosen.thread;
      chosen = entries_.back();
      entries_.pop_back();
    } else {
      thread = entries_[head_++].thread;
      constexpr size_t kLong = 4096;
      if (head_ > kLong && head_ * 2 > entries_.size()) {
        entries_.erase(entries_.begin(), entries_.begin() + std::ptrdiff_t(head_));
        head_ = 0;
      }
    }
    return true;
  }
  // The warp waits for what takes long: now and then, and then this is true, all others go first from here on.
  bool demote(uint32_t warp) {
    constexpr uint32_t kOneIn = 8;
    if (!by_priority_ || random_.below(kOneIn)) return false;
    priorities_[warp] = random_.next() >> 2;
    return true;
  }
  Random& random() { return random_; }

 private:
  struct Entry {
    uint64_t priority;
    uint32_t thread, warp;
    bool operator<(const Entry& other) const { return priority < other.priority; }
  };
  Order order_ = Order::random;
  bool by_priority_ = false;
  Random random_;
  std::vector<uint32_t> priorities_;  // of each warp; demoted at random
  std::vector<Entry> entries_;        // a heap, a bag, or a queue from head_ on
  size_t head_ = 0;
};

}  // namespace cuemu
