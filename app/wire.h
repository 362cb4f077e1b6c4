// The backends by name: the only place that knows which there are.
#pragma once
#include <memory>

#include "core/device/comm.h"
#include "core/plan/plan.h"
#include "core/spec/run_spec.h"

namespace trainer {

// Once, before any plan is made: chooses the device, installs its kernels, and says what it chose ("cpu, 2 threads,
// avx2"). Throws Error(device) where the spec asks for what is not there.
std::string install_device(const DeviceSpec&);

std::unique_ptr<Memory> open_memory(const DeviceSpec&);
// On an arena laid out by the program.
std::unique_ptr<Device> open_device(const DeviceSpec&, const Program&, std::span<std::byte> arena);
std::unique_ptr<Groups> open_groups(const Mesh&);
int device_threads(const DeviceSpec&);

}  // namespace trainer
