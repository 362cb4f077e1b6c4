#include "app/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "app/connect.h"
#include "app/cores.h"
#include "core/base/error.h"
#include "core/base/host.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/huge_memory.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workers.h"
#include "parallel/comm/hosts_groups.h"
#include "parallel/comm/self.h"
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

// Of a world of several ranks: over the shared memory of each host, and over the network between hosts.
class WorldGroups final : public Groups {
 public:
  struct Over {
    const SharedMemory& own;
    Exchange& exchange;
    const std::vector<int>& host_of;  // by rank
    Traffic& traffic;
  };
  WorldGroups(const Planned& p, const Over& over)
      : stages_(p.spec, p.model, find_schedule(p.spec.parallel.pipeline.schedule),
                p.program.plans[0].first.microbatches),
        world_(over.exchange, over.own, ranks_with(over.host_of, over.host_of[size_t(over.exchange.rank())])) {
    const int other = rank_elsewhere(over.host_of, over.exchange.rank());
    if (other < 0) {
      groups_ = std::make_unique<ShmGroups>(world_, p.mesh, stages_, over.traffic);
      return;
    }
    network_ = std::make_unique<Network>(over.exchange, world_, own_address_towards(over.exchange.address_of(other)));
    groups_ = std::make_unique<HostsGroups>(HostsGroups::Over{world_, *network_, over.host_of, over.traffic}, p.mesh,
                                            stages_);
  }
  Comm& on(Axis axis, Lane lane) override { return groups_->on(axis, lane); }
  Comm& pipe(int from, int to, bool gradient) override { return groups_->pipe(from, to, gradient); }

 private:
  static std::vector<int> ranks_with(const std::vector<int>& host_of, int host) {
    std::vector<int> ranks;
    for (size_t r = 0; r < host_of.size(); ++r)
      if (host_of[r] == host) ranks.push_back(int(r));
    return ranks;
  }
  static int rank_elsewhere(const std::vector<int>& host_of, int rank) {  // -1: there is none
    for (size_t r = 0; r < host_of.size(); ++r)
      if (host_of[r] != host_of[size_t(rank)]) return int(r);
    return -1;
  }
  Stages stages_;
  ShmWorld world_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Groups> groups_;
};

// By rank. With `tcp`, every rank is a host of its own.
std::vector<int> hosts_of_ranks(const std::string& comm, Exchange& exchange) {
  std::vector<int> host_of = machines_of_ranks(exchange);
  const auto here = std::count(host_of.begin(), host_of.end(), host_of[size_t(exchange.rank())]);
  check(comm != "shm" || here == exchange.size(), Exit::rank,
        "parallel.comm: shm, but {} of {} ranks are on this host ({}): use auto, or start all on one", here,
        exchange.size(), host_name());
  if (comm == "tcp") std::iota(host_of.begin(), host_of.end(), 0);
  GroupName world{"world", exchange.rank(), std::vector<int>(host_of.size())};
  std::iota(world.members.begin(), world.members.end(), 0);
  host_spans(world, host_of);  // every axis counts ranks upwards: what holds for the world holds for all groups
  return host_of;
}

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
  const std::vector<int> host_of = hosts_of_ranks(planned.spec.parallel.comm, exchange);
  auto memory = std::make_unique<SharedMemory>();
  const auto arena = memory->reserve(bytes);
  auto groups = std::make_unique<WorldGroups>(planned, WorldGroups::Over{*memory, exchange, host_of, *traffic});
  return {std::move(memory), arena, std::move(traffic), std::move(groups)};
}

}  // namespace trainer
