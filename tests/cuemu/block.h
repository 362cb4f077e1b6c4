// One block of a kernel: its threads are fibers of one OS thread.
#pragma once
#include <vector_types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/cuemu/async_copy.h"
#include "tests/cuemu/bulk_copy.h"
#include "tests/cuemu/fail.h"
#include "tests/cuemu/fiber.h"
#include "tests/cuemu/mbarrier.h"
#include "tests/cuemu/ready_queue.h"
#include "tests/cuemu/shared_memory.h"
#include "tests/cuemu/stats.h"
#include "tests/cuemu/warp.h"
#include "tests/cuemu/wgmma.h"

namespace cuemu {

struct Launch {
  const char* name;
  dim3 grid, block;
  size_t shared_bytes;
  const std::function<void()>& body;  // the kernel with its arguments
  char* start_token;                  // of the thread sanitizer: the launch comes before every thread,
  char* end_token;                    // every thread comes before the end; nothing orders blocks among themselves
};

struct Thread {
  Fiber* fiber = nullptr;
  uint3 index{};
  unsigned linear = 0, lane = 0;  // its number in the block and in the warp
  unsigned barriers_passed = 0;
  Warp* warp = nullptr;
  const char* waiting_in = nullptr;  // for reports
  Location where;
  bool done = false;
  AsyncCopies copies;
};

class Block {
 public:
  // Runs block number `number` of the launch to its end.
  void run(const Launch&, uint64_t number);

  // Of the running thread.
  void barrier(const Location&);
  void yield();
  void wait_long();  // now and then so long that all others run and copies land meanwhile
  void suspend();    // until `wake`
  void wake(const Thread& t) { ready_.push(t.linear, t.warp->index); }

  SharedMemory& shared() { return shared_; }
  Stats& stats() { return stats_; }
  Mbarriers& mbarriers() { return mbarriers_; }
  BulkCopies& bulk_copies() { return bulk_copies_; }
  WarpWgmmas& wgmmas(unsigned warp) { return wgmmas_[warp]; }
  bool is_whole_warp_group(unsigned group) const { return (group + 1) * 128 <= size_; }
  bool copies_land_early() const { return copies_land_early_; }
  bool products_read_early() const { return products_read_early_; }
  const char* kernel() const { return launch_->name; }
  // Of the thread sanitizer: for what __syncwarp orders in the warp.
  char* token_of(const Warp& w) const { return tokens_.get() + kBarrierTokens + w.index; }

 private:
  static void thread_main();
  void start_threads(const Launch&, uint64_t number);
  void run_threads();
  bool land_a_bulk_copy();
  void thread_exits();
  void release_barrier();
  [[noreturn]] void report_deadlock();

  static constexpr unsigned kBarrierTokens = 2;
  std::vector<Fiber> fibers_;  // kept for the next block
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  ReadyQueue ready_;
  SharedMemory shared_;
  Mbarriers mbarriers_;
  BulkCopies bulk_copies_;
  std::vector<WarpWgmmas> wgmmas_;
  HostContext host_;
  const Launch* launch_ = nullptr;
  unsigned size_ = 0, alive_ = 0;
  std::vector<const Thread*> at_barrier_;
  Location barrier_where_;
  bool copies_land_early_ = false, products_read_early_ = false;
  bool copies_land_last_ = false;  // bulk copies, when nothing else can run
  uint64_t blocks_run_ = 0;
  Stats stats_;
  // Of this block alone: the sanitizer would add up what several release to one address, and forgets what is freed.
  std::unique_ptr<char[]> tokens_;
};

// Of this OS thread; null outside of kernels.
extern constinit thread_local Block* block;
extern constinit thread_local Thread* current;

}  // namespace cuemu
