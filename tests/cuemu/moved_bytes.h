// Bytes that kernels load from global memory and store there, where their source says so (cu_loads, cu_stores: the
// accesses of kernels/cuda/vector.cuh). Every access counts, whether or not a cache would serve it; a test tells by the
// operand what comes from the caches.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cuemu {

struct MovedBytes {
  uint64_t loaded = 0, stored = 0;
  bool operator==(const MovedBytes&) const = default;
};

// Counts what kernels move while it lives, apart for each of some disjoint ranges of memory. One at a time.
class MovedBytesCount {
 public:
  struct Range {
    const void* data;
    size_t bytes;
  };
  explicit MovedBytesCount(std::vector<Range>);
  ~MovedBytesCount();
  MovedBytesCount(const MovedBytesCount&) = delete;
  MovedBytesCount& operator=(const MovedBytesCount&) = delete;

  // REQUIRES: no kernel runs.
  MovedBytes of(size_t range) const { return moved_[range]; }
  MovedBytes elsewhere() const { return moved_.back(); }  // what lies in no range, or not all of it
  MovedBytes& at(const void* p, size_t bytes);            // of the access; by the emulator

 private:
  std::vector<Range> ranges_;
  std::vector<MovedBytes> moved_;
};

inline constinit std::atomic<MovedBytesCount*> moved_bytes_count{};
void add_loaded(const void* p, size_t bytes);
void add_stored(const void* p, size_t bytes);

inline void count_loaded(const void* p, size_t bytes) {
  if (moved_bytes_count.load(std::memory_order_relaxed)) add_loaded(p, bytes);
}
inline void count_stored(const void* p, size_t bytes) {
  if (moved_bytes_count.load(std::memory_order_relaxed)) add_stored(p, bytes);
}

}  // namespace cuemu
