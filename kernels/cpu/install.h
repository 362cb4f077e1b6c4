// Puts a kernel into the table of its operation.
#pragma once
#include "kernels/cpu/kernels.h"

namespace trainer::cpu {

template <class Op>
void install_kernel() {
  auto& cpu = Kernel<Op>::on(DeviceKind::cpu);
  cpu.run = [](Stream& stream, const void* args) { run(stream, *static_cast<const Op*>(args)); };
  if constexpr (requires(const Op& op) { scratch_bytes(op); }) cpu.scratch = [](const Op& op) { return scratch_bytes(op); };
  Kernel<Op>::on(DeviceKind::meter).scratch = cpu.scratch;  // plans for a CPU are metered with the CPU's workspaces
}

}  // namespace trainer::cpu
