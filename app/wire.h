// The backends by name: the only place that knows which there are.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "app/planning.h"
#include "core/device/stopwatch.h"
#include "parallel/comm/exchange.h"
#include "parallel/comm/traffic.h"

namespace trainer {

// cpu or cuda: `auto` is cuda where this binary finds a GPU to compute on.
DeviceKind device_kind(const DeviceSpec&);

std::string backend_versions();  // of what GPUs need: libraries and driver, or that they are missing

// Once, before any plan is made: installs the device's kernels, and says what it chose ("cpu, 2 threads, avx2"). Throws
// Error(device) where the binary is built without it, or has no fast kernels for the model; a GPU need not be there to
// plan for one. `ranks_on_cores` share this process's cores.
std::string install_device(const RunSpec&, int ranks_on_cores = 1);
std::string install_cpu();  // whatever there is beside it
int device_threads();       // of the CPU's compute pool, once the device is installed

// Before anything is opened on it: takes this rank's device out of those of the host and says what it is; nothing for a
// CPU. Throws Error(device) where it is missing or unfit.
std::string claim_device(const DeviceSpec&, int local_rank, int local_ranks);

// On an arena laid out by the program.
std::unique_ptr<Device> open_device(const DeviceSpec&, const Program&, std::span<std::byte> arena);
std::unique_ptr<Device> open_cpu(const Program&, std::span<std::byte> arena);

// By the device's own clock where it has one.
std::unique_ptr<Stopwatch> open_stopwatch(Device&);
// Of the GPU that was claimed: what everyone uses of its memory, and what a run may use beside its arena.
struct GpuMemory {
  size_t used = 0, reserve = 0;  // bytes
};
GpuMemory gpu_memory();

// Of a rank that is alone.
std::unique_ptr<Memory> open_memory(DeviceKind);
std::unique_ptr<Memory> open_private_memory();  // of a CPU
std::unique_ptr<Groups> open_solo_groups();

// The arena, in memory that the world's other ranks can reach, and the groups over it.
struct Transport {
  std::unique_ptr<Traffic> traffic;
  std::unique_ptr<Memory> memory = nullptr;
  std::span<std::byte> arena = {};
  std::unique_ptr<Memory> staging_memory = nullptr;
  std::span<std::byte> staging = {};  // for batches, where the host does not reach the arena
  std::unique_ptr<Groups> groups = nullptr;
  std::vector<std::string> notes = {};  // sentences for the run's log
};
// Reserves exactly the plan's bytes. Collective over the exchange. Throws Error(rank) where the world's ranks cannot
// reach each other.
Transport open_transport(const Planned&, Exchange&);

}  // namespace trainer
