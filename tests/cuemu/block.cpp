#include "tests/cuemu/block.h"

#include <algorithm>
#include <cstring>

#include "tests/cuemu/device_functions.h"

namespace cuemu {

constinit thread_local Block* block = nullptr;
constinit thread_local Thread* current = nullptr;

namespace {

constexpr size_t kStackBytes = 64u << 10;
constexpr unsigned kWarpSize = 32;

bool same_place(const Location& a, const Location& b) {
  return a.line() == b.line() && a.column() == b.column() && !std::strcmp(a.file_name(), b.file_name());
}

}  // namespace

void Block::run(const Launch& launch, uint64_t number) {
  launch_ = &launch;
  size_ = launch.block.x * launch.block.y * launch.block.z;
  {
    const Unwatched here;
    shared_.start_block(launch.shared_bytes);
    start_threads(launch, number);
  }
  run_threads();
  shared_.check_red_zones();
  ++stats_.blocks;
  stats_.threads += size_;
}

void Block::start_threads(const Launch& launch, uint64_t number) {
  const Schedule schedule = config().schedule;
  const unsigned warps = (size_ + kWarpSize - 1) / kWarpSize;
  if (threads_.size() < size_) threads_.resize(size_);
  // The thread sanitizer knows fibers, not CUDA threads: what runs on one fiber looks ordered, be it of two blocks or
  // of two kernels. So there are more than enough, and they rotate.
  constexpr unsigned kAtLeast = 64, kStride = 37;
  const unsigned fibers = kThreadSanitizer ? std::max(size_, kAtLeast) : size_;
  const unsigned rotation = kThreadSanitizer ? unsigned(blocks_run_++ * kStride % fibers) : 0;
  if (fibers_.size() < fibers) fibers_.resize(fibers);
  if (kThreadSanitizer) tokens_ = std::make_unique<char[]>(kBarrierTokens + warps);
  if (warps_.size() < warps) warps_.resize(warps);
  if (wgmmas_.size() < warps) wgmmas_.resize(warps);
  for (unsigned w = 0; w < warps; ++w) {
    warps_[w].start(w);
    wgmmas_[w].clear();
  }
  mbarriers_.clear();
  bulk_copies_.clear();
  at_barrier_.clear();
  alive_ = size_;
  ready_.start(schedule.order, schedule.seed, number, warps);
  const uint32_t drawn = schedule.order == Order::random ? ready_.random().next() : 0;
  copies_land_early_ = drawn & 1;
  products_read_early_ = drawn & 2;
  copies_land_last_ = drawn & 4;
  for (unsigned k = 0; k < size_; ++k) {
    Thread& t = threads_[k];
    const unsigned x = launch.block.x, y = launch.block.y;
    t.index = {k % x, k / x % y, k / (x * y)};
    t.linear = k;
    t.lane = k % kWarpSize;
    t.barriers_passed = 0;
    t.warp = &warps_[k / kWarpSize];
    t.warp->alive |= 1u << t.lane;
    t.warp->lanes[t.lane] = &t;
    t.waiting_in = nullptr;
    t.done = false;
    t.copies.clear();
    t.fiber = &fibers_[(k + rotation) % fibers];
    t.fiber->start(&Block::thread_main, kStackBytes);
    wake(t);
  }
  ready_.all_in();
}

void Block::run_threads() {
  for (unsigned finished = 0; finished < size_;) {
    constexpr uint32_t kOneIn = 64;
    if (bulk_copies_.pending() && !copies_land_last_ && ready_.random().below(kOneIn) == 0) land_a_bulk_copy();
    uint32_t next = 0;
    if (!ready_.pop(next)) {
      if (!land_a_bulk_copy()) report_deadlock();
      continue;
    }
    Thread& t = threads_[next];
    current = &t;
    threadIdx = t.index;
    ++stats_.switches;
    t.fiber->enter(host_);
    finished += t.done;
  }
  current = nullptr;
}

bool Block::land_a_bulk_copy() {
  if (!bulk_copies_.pending()) return false;
  const Unwatched here;
  bulk_copies_.land(ready_.random().below(bulk_copies_.pending()));
  return true;
}

void Block::thread_main() {
  Fiber::arrived(block->host_);
  tsan_acquire(block->launch_->start_token);
  block->launch_->body();
  {
    const Unwatched here;
    block->thread_exits();
  }
  tsan_release(block->launch_->end_token);
  current->fiber->leave(block->host_);
}

void Block::thread_exits() {
  Thread& t = *current;
  if (t.copies.pending())
    fail("cp.async", t.where, "the thread exits with %zu copies that it never waited for", t.copies.pending());
  if (wgmmas_[t.warp->index].pending())
    fail("wgmma", t.where, "the thread exits with %zu wgmma that it never waited for",
         wgmmas_[t.warp->index].pending());
  t.done = true;
  t.warp->alive &= ~(1u << t.lane);
  check_exit(*t.warp, t.lane);
  --alive_;
  // Threads that left do not hold up a barrier.
  if (!at_barrier_.empty() && at_barrier_.size() == alive_) release_barrier();
  if (alive_ == 0 && bulk_copies_.pending())
    fail("bulk", {}, "the block ends before %zu of its bulk copies", bulk_copies_.pending());
}

void Block::suspend() { current->fiber->suspend(host_); }

void Block::yield() {
  const Unwatched here;
  wake(*current);
  suspend();
}

void Block::wait_long() {
  if (!ready_.demote(current->warp->index)) return;
  yield();
  while (ready_.random().below(2) && land_a_bulk_copy()) {}
}

void Block::barrier(const Location& where) {
  Thread& t = *current;
  // Two tokens in turn: who leaves one barrier must not be ordered by those who already reached the next.
  char* token = tokens_.get() + t.barriers_passed++ % kBarrierTokens;
  tsan_release(token);
  {
    const Unwatched here;
    if (at_barrier_.empty()) barrier_where_ = where;
    if (!same_place(barrier_where_, where))
      fail("barrier", where, "divergent __syncthreads: other threads of the block wait at line %u",
           unsigned(barrier_where_.line()));
    t.where = where;
    t.waiting_in = "__syncthreads";
    at_barrier_.push_back(&t);
    if (at_barrier_.size() == alive_) release_barrier();
    suspend();
    t.waiting_in = nullptr;
  }
  tsan_acquire(token);
}

void Block::release_barrier() {
  for (const Thread* t : at_barrier_) wake(*t);
  at_barrier_.clear();
  ++stats_.barriers;
}

void Block::report_deadlock() {
  const Thread* first = nullptr;
  unsigned count = 0;
  for (unsigned k = 0; k < size_; ++k) {
    if (threads_[k].done) continue;
    if (!first) first = &threads_[k];
    ++count;
  }
  current = const_cast<Thread*>(first);
  fail("deadlock", first->where, "no thread can run; %u of %u are blocked, the first is thread %u in %s", count, size_,
       first->linear, first->waiting_in ? first->waiting_in : "nothing known");
}

void block_barrier(const Location& where) { block->barrier(where); }
void yield_thread() {
  if (block) block->yield();
}
void* shared_slot(const void* tag, size_t bytes, size_t align) {
  const Unwatched here;
  return block->shared().array(tag, bytes, align);
}
void* dyn_shared(size_t) { return block->shared().dynamic(); }
size_t dyn_shared_bytes() { return block->shared().dynamic_bytes(); }

}  // namespace cuemu
