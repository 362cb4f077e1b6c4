#include "app/wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/connect.h"
#include "app/process_stats.h"
#include "core/base/error.h"
#include "core/base/host.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/huge_memory.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workers.h"
#include "parallel/comm/self.h"
#include "parallel/comm/shm_groups.h"
#include "parallel/schedules/schedules.h"

namespace trainer {

std::string install_device(const DeviceSpec& spec, int ranks_on_cores) {
  check(spec.kind != DeviceChoice::cuda, Exit::device,
        "device.kind: cuda: this binary is built without CUDA; use cpu or auto");
  const int threads = int(spec.threads.value_or(std::max(1, available_cores() / ranks_on_cores)));
  cpu::install_cpu_kernels(threads);
  const cpu::Level level = cpu::cpu_level();
  return fmt::format("cpu, {} thread{}, {}{}", threads, threads == 1 ? "" : "s", cpu::name_of(level),
                     level == cpu::Level::avx512_bf16 ? "" : " (bf16 products are computed in fp32)");
}

int device_threads() { return cpu::planned_workers(); }

std::unique_ptr<Device> open_device(const Program& program, std::span<std::byte> arena) {
  const int threads = device_threads();  // pinned where all the cores are theirs
  return std::make_unique<cpu::CpuDevice>(
      arena, cpu::ScratchMap{program.scratch_offset, program.scratch},
      cpu::CpuOptions{.threads = threads, .pin = threads == available_cores(), .ring_bytes = program.ring_bytes});
}

namespace {

// Ranks of one host, over their shared memory.
class HostGroups final : public Groups {
 public:
  struct Over {
    const SharedMemory& own;
    Exchange& exchange;
    const std::vector<int>& ranks_of_host;
    Traffic& traffic;
  };
  HostGroups(const Planned& p, const Over& over)
      : stages_(p.spec, p.model, find_schedule(p.spec.parallel.pipeline.schedule),
                p.program.plans[0].first.microbatches),
        world_(over.exchange, over.own, over.ranks_of_host),
        groups_(world_, p.mesh, stages_, over.traffic) {}
  Comm& on(Axis axis, Lane lane) override { return groups_.on(axis, lane); }
  Comm& pipe(int from, int to, bool gradient) override { return groups_.pipe(from, to, gradient); }

 private:
  Stages stages_;
  ShmWorld world_;
  ShmGroups groups_;
};

}  // namespace

std::unique_ptr<Memory> open_private_memory() { return std::make_unique<cpu::HugeMemory>(); }
std::unique_ptr<Groups> open_solo_groups() { return std::make_unique<SelfGroups>(); }

Transport open_transport(const Planned& planned, Exchange& exchange) {
  const size_t bytes = planned.program.arena_bytes;
  auto traffic = std::make_unique<Traffic>();
  if (exchange.size() == 1) {
    auto memory = open_private_memory();
    const auto arena = memory->reserve(bytes);
    return {std::move(memory), arena, std::move(traffic), open_solo_groups()};
  }
  const std::vector<int> here = ranks_of_machine(exchange);
  check(int(here.size()) == exchange.size(), Exit::rank,
        "{} of {} ranks are on this host ({}): ranks on several hosts are not built yet; start all on one", here.size(),
        exchange.size(), host_name());
  auto memory = std::make_unique<SharedMemory>();
  const auto arena = memory->reserve(bytes);
  auto groups = std::make_unique<HostGroups>(planned, HostGroups::Over{*memory, exchange, here, *traffic});
  return {std::move(memory), arena, std::move(traffic), std::move(groups)};
}

}  // namespace trainer
