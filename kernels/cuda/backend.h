// The CUDA backend as the application sees it, without a CUDA type; kernels/no_cuda stands in where there is no
// toolkit.
#pragma once
#include <memory>
#include <string>

#include "core/device/stopwatch.h"
#include "core/plan/plan.h"
#include "kernels/cuda/algorithms.h"

namespace trainer::cuda {

std::string versions();  // "CUDA 13.0, driver 13.0, cuBLASLt 13.1.0", or what is missing
bool usable() noexcept;  // there is a GPU that this binary can compute on

// The rows of the kernel tables, and scratch for the meter: all that planning for a GPU needs; no GPU has to be there.
// Throws Error(device) where the binary is built without CUDA.
void install_kernels(const MatmulPolicy&);

// In bf16, whatever the mask.
bool has_fast_attention(int64_t head_dim);

struct GpuClaim {
  int local_rank = 0, local_ranks = 1;  // of the ranks on this host
};
// Chooses this rank's GPU, looks whether it is fit, and says what it is ("NVIDIA H100, sm_90, 80 GiB, ECC on"). For the
// calling thread, which issues all work. Throws Error(device): no driver or an old one, no GPU, fewer GPUs than ranks,
// too old a GPU, GPUs of several kinds.
std::string claim_gpu(const GpuClaim&);

// Which it is in the world: "GPU 0000:3b:00.0 of host n2".
std::string gpu_address();

std::unique_ptr<Memory> open_memory();         // of the GPU, for the arena
std::unique_ptr<Memory> open_pinned_memory();  // of the host, for batches
std::unique_ptr<Device> open_device(const Program&, std::span<std::byte> arena);

std::unique_ptr<Stopwatch> open_stopwatch(Stream&);
size_t used_bytes();  // of the GPU's memory, by everyone who uses it
// What the context, the modules and the communicators may take of it beside the arena.
inline constexpr size_t kReserveBytes = size_t{512} << 20;

}  // namespace trainer::cuda
