// The backends by name: the only place that knows which there are.
#pragma once
#include <memory>

#include "app/planning.h"
#include "parallel/comm/exchange.h"
#include "parallel/comm/traffic.h"

namespace trainer {

// Once, before any plan is made: chooses the device, installs its kernels, and says what it chose ("cpu, 2 threads,
// avx2"). Throws Error(device) where the spec asks for what is not there.
// `ranks_on_cores` share this process's cores.
std::string install_device(const DeviceSpec&, int ranks_on_cores = 1);
int device_threads();  // of the compute pool, once the device is installed

// On an arena laid out by the program.
std::unique_ptr<Device> open_device(const Program&, std::span<std::byte> arena);

// Of a rank that is alone.
std::unique_ptr<Memory> open_private_memory();
std::unique_ptr<Groups> open_solo_groups();

// The arena, in memory that the world's other ranks can reach, and the groups over it.
struct Transport {
  std::unique_ptr<Memory> memory;
  std::span<std::byte> arena;
  std::unique_ptr<Traffic> traffic;
  std::unique_ptr<Groups> groups;
};
// Reserves exactly the plan's bytes. Collective over the exchange. Throws Error(rank) where the world's ranks cannot
// reach each other.
Transport open_transport(const Planned&, Exchange&);

}  // namespace trainer
