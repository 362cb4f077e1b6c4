#include "tests/cuemu/mbarrier.h"

#include "tests/cuemu/block.h"

namespace cuemu {

Mbarriers::Mbarrier& Mbarriers::find(const void* barrier, const Location& where) {
  const auto found = all_.find(barrier);
  if (found == all_.end()) fail("mbarrier", where, "%p was never initialized", barrier);
  return found->second;
}

void Mbarriers::init(const void* barrier, unsigned arrivals, const Location& where) {
  const Unwatched here;
  if (reinterpret_cast<uintptr_t>(barrier) % 8 || !block->shared().contains(barrier, 8))
    fail("mbarrier", where, "%p is not 8 aligned bytes of shared memory", barrier);
  if (arrivals == 0) fail("mbarrier", where, "a phase needs an arrival");
  Mbarrier fresh;
  fresh.arrivals = fresh.missing = arrivals;
  all_[barrier] = std::move(fresh);
}

void Mbarriers::arrive(const void* barrier, unsigned expected_bytes, const Location& where) {
  Mbarrier& b = find(barrier, where);
  tsan_release(&b.token);
  const Unwatched here;
  if (b.missing == 0) fail("mbarrier", where, "more arrivals than the %u of a phase", b.arrivals);
  b.bytes += expected_bytes;
  --b.missing;
  end_phase_if_complete(b);
}

void Mbarriers::complete_bytes(const void* barrier, unsigned bytes) {
  Mbarrier& b = find(barrier, {});
  b.bytes -= bytes;
  end_phase_if_complete(b);
}

void Mbarriers::end_phase_if_complete(Mbarrier& b) {
  if (b.missing || b.bytes) return;
  b.missing = b.arrivals;
  b.phase ^= 1;
  for (const Thread* t : b.waiting) block->wake(*t);
  b.waiting.clear();
}

void Mbarriers::wait(const void* barrier, unsigned parity, const Location& where) {
  Mbarrier& b = find(barrier, where);
  {
    const Unwatched here;
    // Whoever sleeps through the next phase as well waits for another one, as on the device.
    while (b.phase == parity) {
      current->where = where;
      current->waiting_in = "the wait for an mbarrier";
      b.waiting.push_back(current);
      block->suspend();
      current->waiting_in = nullptr;
    }
  }
  tsan_acquire(&b.token);
}

}  // namespace cuemu
