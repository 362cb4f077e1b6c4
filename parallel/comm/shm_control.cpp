#include "parallel/comm/shm_control.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "core/base/error.h"

namespace trainer::shm {

std::string_view name_of(Op op) {
  constexpr std::string_view kNames[] = {"nothing",        "barrier",        "all_gather",
                                         "reduce_scatter", "all_reduce sum", "all_reduce max",
                                         "all_to_all",     "send",           "receive"};
  return size_t(op) < std::size(kNames) ? kNames[size_t(op)] : "an unknown operation";
}

void Word::wake() noexcept {
  // Either this sees the sleeper, or the sleeper (which counts itself first) sees the new value.
  if (sleepers_.load(std::memory_order_seq_cst)) syscall(SYS_futex, &value_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Word::advance() {
  value_.fetch_add(kStep, std::memory_order_seq_cst);
  wake();
}

void Word::fail() noexcept {
  value_.fetch_or(1, std::memory_order_seq_cst);
  wake();
}

Word::Result Word::await(uint32_t target, int spins, std::chrono::milliseconds limit) {
  for (int i = 0; i <= spins; ++i, __builtin_ia32_pause()) {
    const uint32_t v = value_.load(std::memory_order_acquire);
    if (is_at(v, target)) return Result::reached;
    if (v & 1) return Result::failed;
  }
  const timespec timeout{limit.count() / 1000, limit.count() % 1000 * 1000000};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  Result result = Result::timeout;
  for (bool late = false;;) {
    const uint32_t v = value_.load(std::memory_order_seq_cst);
    if (is_at(v, target)) result = Result::reached;
    else if (v & 1) result = Result::failed;
    if (late || result != Result::timeout) break;
    late = syscall(SYS_futex, &value_, FUTEX_WAIT, v, &timeout, nullptr, 0) != 0 && errno == ETIMEDOUT;
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

}  // namespace trainer::shm
