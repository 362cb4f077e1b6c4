// Runs one operation on a CPU device of its own.
#pragma once
#include <cstdlib>
#include <memory>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/workers.h"

namespace trainer::test {

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

}  // namespace trainer::test
