// A stack that runs a function and can be left and entered again: a CUDA thread, or a stream under the thread
// sanitizer. The sanitizers see each fiber as a thread of its own, and no order between two of them.
#pragma once
#include <cstddef>

#include "tests/cuemu/sanitizers.h"

namespace cuemu {

// Saves the callee-saved registers, then its stack pointer to *save, and goes on at `load`.
extern "C" void cuemu_switch(void** save, void* load);

// Whoever enters fibers: an OS thread. Filled by `enter`.
struct HostContext {
  void* stack_pointer = nullptr;
  void* tsan = nullptr;
  void* asan_fake_stack = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_size = 0;
};

class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(Fiber&& from) noexcept { *this = static_cast<Fiber&&>(from); }
  Fiber& operator=(Fiber&& from) noexcept;

  // Otherwise the first `start` does it, and what its caller did before comes before all that the fiber does.
  void create(size_t stack_bytes);
  // The next `enter` calls `entry`, whose first statement is `arrived` and whose last is `leave`; it never returns. The
  // stack and the sanitizer's thread are kept from the last time.
  void start(void (*entry)(), size_t stack_bytes);

  // Of the host: runs the fiber until it suspends.
  void enter(HostContext& host) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&host.asan_fake_stack, stack_, stack_bytes_);
#endif
#if defined(EMU_TSAN)
    host.tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_, __tsan_switch_to_fiber_no_sync);
#endif
    cuemu_switch(&host.stack_pointer, stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(host.asan_fake_stack, nullptr, nullptr);
#endif
  }

  // Of the fiber.
  static void arrived([[maybe_unused]] HostContext& host) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &host.stack_bottom, &host.stack_size);
#endif
  }
  void suspend(HostContext& host) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&asan_fake_stack_, host.stack_bottom, host.stack_size);
#endif
    switch_to(host);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(asan_fake_stack_, &host.stack_bottom, &host.stack_size);
#endif
  }
  [[noreturn]] void leave(HostContext& host) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(nullptr, host.stack_bottom, host.stack_size);
#endif
    switch_to(host);
    __builtin_unreachable();
  }

  // Everything the fiber did so far comes before what the caller does next.
  void join();

 private:
  void switch_to(HostContext& host) {
#if defined(EMU_TSAN)
    __tsan_switch_to_fiber(host.tsan, __tsan_switch_to_fiber_no_sync);
#endif
    cuemu_switch(&stack_pointer_, host.stack_pointer);
  }

  char* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  void* stack_pointer_ = nullptr;
  void* tsan_ = nullptr;
  void* asan_fake_stack_ = nullptr;
};

}  // namespace cuemu
