#include "tests/cuemu/moved_bytes.h"

#include <algorithm>
#include <mutex>

#include "tests/cuemu/fail.h"
#include "tests/cuemu/quiet_lock.h"

namespace cuemu {
namespace {

QuietLock lock;  // of all counts

bool lies_in(const MovedBytesCount::Range& r, const void* p, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(r.data), at = reinterpret_cast<uintptr_t>(p);
  return at >= begin && at + bytes <= begin + r.bytes;
}

}  // namespace

MovedBytesCount::MovedBytesCount(std::vector<Range> ranges) : ranges_(std::move(ranges)), moved_(ranges_.size() + 1) {
  if (moved_bytes_count.exchange(this)) fail("count", {}, "bytes are counted twice at a time");
}
MovedBytesCount::~MovedBytesCount() { moved_bytes_count = nullptr; }

MovedBytes& MovedBytesCount::at(const void* p, size_t bytes) {
  const auto range = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& r) { return lies_in(r, p, bytes); });
  return moved_[size_t(range - ranges_.begin())];
}

void add_loaded(const void* p, size_t bytes) {
  const std::lock_guard hold(lock);
  moved_bytes_count.load()->at(p, bytes).loaded += bytes;
}
void add_stored(const void* p, size_t bytes) {
  const std::lock_guard hold(lock);
  moved_bytes_count.load()->at(p, bytes).stored += bytes;
}

}  // namespace cuemu
