// The settings of fake_cuda.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace fake {

uint64_t first_seed();
bool eager();
int device_count();
size_t memory_of_a_device();
int compute_capability(int device);  // 90
int driver_version();
bool peer_access();
double hang_seconds();
// This call of `api` is the one that FAKECUDA_FAIL names.
bool injected(const char* api);

}  // namespace fake
