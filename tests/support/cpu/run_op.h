// Runs one operation on a CPU device of its own.
#pragma once
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/workers.h"
#include "tests/support/buffer.h"

namespace trainer::test {

// Kernels refuse tokens and positions out of range.
inline constexpr bool kIdsAreChecked = true;

// Launches `op` on the compute lane and waits for it; rethrows what the kernel threw. The lane's scratch is exactly
// what the kernel asks for, so a sanitizer sees what goes beyond.
template <class Op>
void run_op(const Op& op, int threads = 2) {
  cpu::set_planned_workers(threads);
  size_t bytes = 0;
  if constexpr (requires { cpu::scratch_bytes(op); }) bytes = cpu::scratch_bytes(op);
  constexpr size_t kAlign = 128;
  const std::unique_ptr<std::byte, void (*)(void*)> arena(
      static_cast<std::byte*>(std::aligned_alloc(kAlign, (bytes + kAlign) / kAlign * kAlign)), &std::free);
  cpu::ScratchMap scratch;
  scratch.bytes[size_t(Lane::compute)] = bytes;
  cpu::CpuDevice device({arena.get(), bytes}, scratch, {.threads = threads, .pin = false});
  device.lane(Lane::compute)
      .submit([](Stream& s, const void* args) { cpu::run(s, *static_cast<const Op*>(args)); }, &op, sizeof op);
  device.drain();
}

// The same with 1, 2 and 3 threads, each from the same beginning: what is written to `outputs` must not differ in a
// bit.
template <class Op>
void run_with_any_threads(const Op& op, std::initializer_list<Buffer*> outputs) {
  std::vector<std::vector<std::byte>> before, wanted;
  for (Buffer* b : outputs) before.push_back(b->bytes());
  for (const int threads : {1, 2, 3}) {
    size_t i = 0;
    for (Buffer* b : outputs) b->restore(before[i++]);
    run_op(op, threads);
    i = 0;
    for (Buffer* b : outputs) {
      if (threads == 1) wanted.push_back(b->bytes());
      INFO("output " << i << " with " << threads << " threads");
      REQUIRE(b->bytes() == wanted[i++]);
    }
  }
}

}  // namespace trainer::test
