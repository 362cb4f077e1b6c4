// The one thread pool of a rank. The caller is worker 0; the others spin for about half a millisecond, then sleep.
//
// Work is a fixed grid of tasks, taken dynamically: which worker runs a task decides only whose scratch it uses, so results never
// depend on the number of threads.
#pragma once
#include <atomic>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "core/device/device.h"

namespace trainer::cpu {

class Pool {
 public:
  // `workers` >= 1, the caller included. Pinned workers take the allowed cores in order; the caller pins itself with pin_caller.
  explicit Pool(int workers, bool pin = true);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  int size() const { return workers_; }
  void pin_caller() const;

  // f(worker) once on every worker; returns when all are done. f must not throw.
  template <class F>
  void run(F&& f) {
    if (workers_ == 1) return f(0);
    function_ = [](void* p, int worker) { (*static_cast<std::remove_reference_t<F>*>(p))(worker); };
    argument_ = &f;
    start();
    f(0);
    finish();
  }
  // f(task, worker) for every task in [0, count).
  template <class F>
  void tasks(int64_t count, F&& f) {
    if (count == 1) return f(int64_t{0}, 0);
    next_.store(0, std::memory_order_relaxed);
    run([&](int worker) {
      for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) f(i, worker);
    });
  }

 private:
  void start();
  void finish();
  void work(int worker);
  void pin(int worker) const;

  const int workers_;
  const bool pin_;
  std::vector<int> cores_;
  std::vector<std::thread> threads_;
  void (*function_)(void*, int) = nullptr;
  void* argument_ = nullptr;
  std::atomic<bool> stop_{false};
  alignas(128) std::atomic<uint32_t> epoch_{0};
  alignas(128) std::atomic<int> left_{0};
  alignas(128) std::atomic<int64_t> next_{0};
};

// The pool behind a CPU lane: the rank's workers on the compute lane, the lane's own thread on the others.
inline Pool& pool_of(Stream& stream) { return *static_cast<Pool*>(stream.native()); }


}  // namespace trainer::cpu
