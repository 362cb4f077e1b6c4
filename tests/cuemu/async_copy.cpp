#include "tests/cuemu/async_copy.h"

#include <cstdint>
#include <cstring>

#include "tests/cuemu/block.h"

namespace cuemu {

void AsyncCopies::clear() {
  copies_.clear();
  group_ = 0;
}

// Two adversaries, one per block: everything lands at once, or nothing before the wait.
void AsyncCopies::issue(void* dst, const void* src, unsigned bytes, unsigned src_bytes) {
  Copy copy{dst, src, bytes, src_bytes, group_};
  if (block->copies_land_early()) {
    land(copy);
    copy.bytes = copy.src_bytes = 0;  // what is left to wait for
  }
  copies_.push_back(copy);
}

void AsyncCopies::wait(unsigned groups_in_flight) {
  const int first_in_flight = group_ - int(groups_in_flight);
  auto copy = copies_.begin();
  for (; copy != copies_.end() && copy->group < first_in_flight; ++copy) land(*copy);
  copies_.erase(copies_.begin(), copy);
}

void AsyncCopies::land(const Copy& c) {
  tsan_read(c.src, c.src_bytes);
  tsan_write(c.dst, c.bytes);
  const Unwatched here;
  std::memcpy(c.dst, c.src, c.src_bytes);
  std::memset(static_cast<char*>(c.dst) + c.src_bytes, 0, c.bytes - c.src_bytes);
}

void cp_async(void* dst, const void* src, unsigned bytes, unsigned src_bytes, const Location& where) {
  if ((reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src)) & (bytes - 1))
    fail("align", where, "cp.async of %u bytes: %p or %p is not aligned to them", bytes, dst, src);
  if (!block->shared().contains(dst, bytes))
    fail("space", where, "cp.async writes to %p, which is outside shared memory", dst);
  ++block->stats().cp_async;
  current->where = where;
  current->copies.issue(dst, src, bytes, src_bytes);
}
void cp_async_commit() { current->copies.commit(); }
void cp_async_wait(unsigned groups_in_flight) { current->copies.wait(groups_in_flight); }

}  // namespace cuemu
