// What a rank's communicators moved, and how long its lanes were in them, since they were opened. Lanes write, the host
// reads.
#pragma once
#include <array>
#include <atomic>

#include "core/device/comm.h"

namespace trainer {

class Traffic {
 public:
  struct Entry {
    std::atomic<int64_t> bytes{0}, nanoseconds{0};
  };
  Entry& entry(Axis axis, Lane lane) { return entries_[size_t(axis)][size_t(lane)]; }
  int64_t bytes(Axis axis, Lane lane) const {
    return entries_[size_t(axis)][size_t(lane)].bytes.load(std::memory_order_relaxed);
  }
  MovedBytes moved() const {
    MovedBytes all{};
    for (int a = 0; a < kAxes; ++a)
      for (int l = 0; l < kLanes; ++l) all[size_t(a)][size_t(l)] = bytes(Axis(a), Lane(l));
    return all;
  }
  void add(const MovedBytes& more) {
    for (size_t a = 0; a < more.size(); ++a)
      for (size_t l = 0; l < more[a].size(); ++l) entries_[a][l].bytes.fetch_add(more[a][l], std::memory_order_relaxed);
  }
  double seconds(Axis axis, Lane lane) const {
    return double(entries_[size_t(axis)][size_t(lane)].nanoseconds.load(std::memory_order_relaxed)) * 1e-9;
  }

 private:
  std::array<std::array<Entry, kLanes>, kAxes> entries_;
};

}  // namespace trainer
