#include "app/wire.h"

#include <fmt/format.h>

#include "app/process_stats.h"
#include "core/base/error.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/huge_memory.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workers.h"
#include "parallel/comm/self.h"

namespace trainer {

int device_threads(const DeviceSpec& spec) { return int(spec.threads.value_or(available_cores())); }

std::string install_device(const DeviceSpec& spec) {
  check(spec.kind != DeviceChoice::cuda, Exit::device,
        "device.kind: cuda: this binary is built without CUDA; use cpu or auto");
  const int threads = device_threads(spec);
  cpu::install_cpu_kernels(threads);
  const cpu::Level level = cpu::cpu_level();
  return fmt::format("cpu, {} thread{}, {}{}", threads, threads == 1 ? "" : "s", cpu::name_of(level),
                     level == cpu::Level::avx512_bf16 ? "" : " (bf16 products are computed in fp32)");
}

std::unique_ptr<Memory> open_memory(const DeviceSpec&) { return std::make_unique<cpu::HugeMemory>(); }

std::unique_ptr<Device> open_device(const DeviceSpec& spec, const Program& program, std::span<std::byte> arena) {
  const int threads = device_threads(spec);  // pinned where all the cores are theirs
  return std::make_unique<cpu::CpuDevice>(
      arena, cpu::ScratchMap{program.scratch_offset, program.scratch},
      cpu::CpuOptions{.threads = threads, .pin = threads == available_cores(), .ring_bytes = program.ring_bytes});
}

std::unique_ptr<Groups> open_groups(const Mesh&) { return std::make_unique<SelfGroups>(); }

}  // namespace trainer
