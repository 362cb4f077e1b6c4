#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <sched.h>

namespace trainer::cpu {
namespace {

void pause() { __builtin_ia32_pause(); }

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  return cores;
}

constexpr int kSpins = 20000;  // about half a millisecond

}  // namespace

Pool::Pool(int workers, bool pin) : workers_(workers), pin_(pin), cores_(allowed_cores()) {
  for (int i = 1; i < workers; ++i) threads_.emplace_back([this, i] { work(i); });
}
Pool::~Pool() {
  stop_ = true;
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& t : threads_) t.join();
}

void Pool::pin(int worker) const {
  if (!pin_ || workers_ == 1 || int(cores_.size()) < workers_) return;  // sharing a core would be worse than moving
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores_[size_t(worker)], &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}
void Pool::pin_caller() const { pin(0); }

void Pool::start() {
  left_.store(workers_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1);
  epoch_.notify_all();
}
void Pool::finish() {
  while (left_.load(std::memory_order_acquire) > 0) pause();
}
void Pool::work(int worker) {
  pin(worker);
  const int spins = int(cores_.size()) >= workers_ ? kSpins : 0;
  for (uint32_t seen = 0;; ++seen) {
    for (int i = 0; i < spins && epoch_.load(std::memory_order_acquire) == seen; ++i) pause();
    while (epoch_.load(std::memory_order_acquire) == seen) epoch_.wait(seen);
    if (stop_) return;
    function_(argument_, worker);
    left_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace trainer::cpu
