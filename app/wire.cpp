#include "app/wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/cores.h"
#include "app/world_groups.h"
#include "core/base/error.h"
#include "core/engine/host_feed.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/huge_memory.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workers.h"
#include "kernels/cuda/backend.h"
#include "parallel/comm/nccl_backend.h"
#include "parallel/comm/self.h"

namespace trainer {
namespace {

std::string install_cpu_kernels(const DeviceSpec& spec, int ranks_on_cores) {
  const int threads = int(spec.threads.value_or(std::max(1, available_cores() / ranks_on_cores)));
  cpu::install_cpu_kernels(threads);
  const cpu::Level level = cpu::cpu_level();
  return fmt::format("cpu, {} thread{}, {}{}", threads, threads == 1 ? "" : "s", cpu::name_of(level),
                     level == cpu::Level::avx512_bf16 ? "" : " (bf16 products are computed in fp32)");
}

std::string nccl_version_or_none() {
  try {
    return nccl_version();
  } catch (const Error&) { return "none"; }
}

// Empty, or what is worth knowing.
std::string check_attention(const RunSpec& spec) {
  const int64_t width = spec.model.head_dim;
  if (spec.precision.compute != Precision::bf16 || cuda::has_fast_attention(width)) return "";
  check(
      spec.device.fallback, Exit::device,
      "model.head_dim: no fast attention in bf16 for a head width of {}: use 64, 96 or 128, or precision.compute=fp32, "
      "or allow the plain kernels with device.fallback=true",
      width);
  return fmt::format(", plain attention kernels for a head width of {}", width);
}

size_t batch_staging(const Planned& p) {
  return staging_bytes(p.program, p.spec.train.micro_batch * p.spec.data.seq_len);
}

Transport open_gpu_transport(const Planned& p, Exchange& exchange) {
  Transport t{.traffic = std::make_unique<Traffic>()};
  t.memory = cuda::open_memory();
  t.arena = t.memory->reserve(p.program.arena_bytes);
  t.staging_memory = cuda::open_pinned_memory();
  t.staging = t.staging_memory->reserve(batch_staging(p));
  if (exchange.size() == 1) {
    t.groups = open_solo_groups();
    return t;
  }
  const NcclOptions options{.arena = t.arena,
                            .zero = int(p.spec.parallel.zero),
                            .votes = updates_ahead(p.program),
                            .gpu = cuda::gpu_address()};
  auto groups = open_nccl_groups(exchange, p.mesh, stages_of(p), *t.traffic, options);
  t.notes = groups->notes();
  t.groups = std::move(groups);
  return t;
}

Transport open_cpu_transport(const Planned& p, Exchange& exchange) {
  Transport t{.traffic = std::make_unique<Traffic>()};
  if (exchange.size() == 1) {
    t.memory = open_private_memory();
    t.arena = t.memory->reserve(p.program.arena_bytes);
    t.groups = open_solo_groups();
    return t;
  }
  auto memory = std::make_unique<SharedMemory>();
  t.arena = memory->reserve(p.program.arena_bytes);
  t.groups = std::make_unique<WorldGroups>(p, WorldGroups::Over{*memory, exchange, *t.traffic});
  t.memory = std::move(memory);
  return t;
}

}  // namespace

DeviceKind device_kind(const DeviceSpec& spec) {
  if (spec.kind == DeviceChoice::automatic) return cuda::usable() ? DeviceKind::cuda : DeviceKind::cpu;
  return spec.kind == DeviceChoice::cuda ? DeviceKind::cuda : DeviceKind::cpu;
}

std::string install_device(const RunSpec& spec, int ranks_on_cores) {
  if (device_kind(spec.device) == DeviceKind::cpu) {
    check(!spec.device.cuda_graph, Exit::spec,
          "device.cuda_graph: true makes a CUDA graph of a step, and the device is a CPU; use device.cuda_graph=false, "
          "or device.kind=cuda");
    check(spec.parallel.comm != "nccl", Exit::spec,
          "parallel.comm: nccl connects GPUs, and device.kind is cpu; use auto, shm or tcp");
    return install_cpu_kernels(spec.device, ranks_on_cores);
  }
  check(spec.parallel.comm == "nccl" || spec.parallel.comm == "auto", Exit::spec,
        "parallel.comm: {} connects CPUs, and device.kind is cuda; use auto or nccl", spec.parallel.comm);
  cuda::install_kernels({.tf32 = spec.precision.tf32, .search = spec.device.heuristics.has_value()});
  return cuda::versions() + check_attention(spec);
}

std::string install_cpu() {
  const int every_core = 1;
  return install_cpu_kernels({}, every_core);
}

std::string claim_device(const DeviceSpec& spec, int local_rank, int local_ranks) {
  if (device_kind(spec) == DeviceKind::cpu) return "";
  return cuda::claim_gpu({local_rank, local_ranks});
}

std::string backend_versions() { return fmt::format("{}, NCCL {}", cuda::versions(), nccl_version_or_none()); }

int device_threads() { return cpu::planned_workers(); }

std::unique_ptr<Device> open_cpu(const Program& program, std::span<std::byte> arena) {
  const int threads = device_threads();  // pinned where all the cores are theirs
  return std::make_unique<cpu::CpuDevice>(
      arena, cpu::ScratchMap{program.scratch_offset, program.scratch},
      cpu::CpuOptions{.threads = threads, .pin = threads == available_cores(), .ring_bytes = program.ring_bytes});
}

std::unique_ptr<Device> open_device(const DeviceSpec& spec, const Program& program, std::span<std::byte> arena) {
  return device_kind(spec) == DeviceKind::cpu ? open_cpu(program, arena) : cuda::open_device(program, arena);
}

std::unique_ptr<Stopwatch> open_stopwatch(Device& device) {
  if (device.kind() == DeviceKind::cuda) return cuda::open_stopwatch(device.lane(Lane::compute));
  return std::make_unique<HostStopwatch>(device);
}

GpuMemory gpu_memory() { return {cuda::used_bytes(), cuda::kReserveBytes}; }

std::unique_ptr<Memory> open_memory(DeviceKind kind) {
  return kind == DeviceKind::cuda ? cuda::open_memory() : open_private_memory();
}
std::unique_ptr<Memory> open_private_memory() { return std::make_unique<cpu::HugeMemory>(); }
std::unique_ptr<Groups> open_solo_groups() { return std::make_unique<SelfGroups>(); }

Transport open_transport(const Planned& p, Exchange& exchange) {
  return device_kind(p.spec.device) == DeviceKind::cuda ? open_gpu_transport(p, exchange)
                                                        : open_cpu_transport(p, exchange);
}

}  // namespace trainer
