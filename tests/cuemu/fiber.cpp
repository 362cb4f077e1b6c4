#include "tests/cuemu/fiber.h"

#include <sys/mman.h>

#include <cstdlib>
#include <utility>

#if !defined(__x86_64__)
#error "the emulated device has no switch of stacks for this CPU"
#endif
// The callee-saved registers of the System V ABI; the emulator never changes the control words of the FPU.
asm(R"(
.text
.globl cuemu_switch
.type cuemu_switch,@function
cuemu_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size cuemu_switch,.-cuemu_switch
)");

namespace cuemu {
namespace {

constexpr size_t kGuard = 4096;  // below each stack: an overflow ends the process instead of changing a neighbour
constexpr int kSavedRegisters = 6;

}  // namespace

Fiber::~Fiber() {
  if (stack_) munmap(stack_, stack_bytes_);
#if defined(EMU_TSAN)
  if (tsan_) __tsan_destroy_fiber(tsan_);
#endif
}

Fiber& Fiber::operator=(Fiber&& from) noexcept {
  std::swap(stack_, from.stack_);
  std::swap(stack_bytes_, from.stack_bytes_);
  std::swap(stack_pointer_, from.stack_pointer_);
  std::swap(tsan_, from.tsan_);
  std::swap(asan_fake_stack_, from.asan_fake_stack_);
  return *this;
}

void Fiber::create(size_t stack_bytes) {
  void* p = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) std::abort();
  stack_ = static_cast<char*>(p);
  stack_bytes_ = stack_bytes;
  mprotect(stack_, kGuard, PROT_NONE);
#if defined(EMU_TSAN)
  tsan_ = __tsan_create_fiber(0);
#endif
}

void Fiber::start(void (*entry)(), size_t stack_bytes) {
  if (!stack_) create(stack_bytes);
  asan_unpoison(stack_ + kGuard, stack_bytes_ - kGuard);  // the frames of the last time were never unwound
  asan_fake_stack_ = nullptr;
  auto** top = reinterpret_cast<void**>(stack_ + stack_bytes_);
  *--top = nullptr;  // where `entry` would return to: it keeps the ABI's alignment, and never does
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  stack_pointer_ = top;
}

void Fiber::join() {
#if defined(EMU_TSAN)
  if (!tsan_) return;
  char token;
  void* me = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_, __tsan_switch_to_fiber_no_sync);
  __tsan_release(&token);
  __tsan_switch_to_fiber(me, __tsan_switch_to_fiber_no_sync);
  __tsan_acquire(&token);
#endif
}

}  // namespace cuemu
