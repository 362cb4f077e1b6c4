#include "kernels/cuda/backend.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/base/host.h"
#include "core/engine/resolve.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cublaslt_api.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_stopwatch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/table.h"

namespace trainer::cuda {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// 0: there is none. Whatever opens the driver asks this first: it may read its settings then.
int driver_version() {
  // Eleven lanes want queues of their own: one that shared another's would stand behind a receive that waits.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

// Within a major version an older driver serves a newer toolkit.
bool serves(int driver) { return driver / 1000 >= CUDART_VERSION / 1000; }

int device_count() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  cudaGetLastError();
  return result == cudaSuccess ? count : 0;
}

void check_driver() {
  const int driver = driver_version();
  check(driver != 0, Exit::device,
        "device.kind: cuda: no NVIDIA driver on this machine; install one, or use device.kind=cpu");
  check(serves(driver), Exit::device,
        "device.kind: cuda: the driver is for CUDA {}, this binary is built with {}; update the driver",
        version_text(driver), version_text(CUDART_VERSION));
}

void check_count(const GpuClaim& claim, int count) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string filter = visible ? fmt::format(" (CUDA_VISIBLE_DEVICES is \"{}\")", visible) : "";
  check(count > 0, Exit::device, "device.kind: cuda: no GPU is visible{}; use device.kind=cpu, or make one visible",
        filter);
  check(claim.local_ranks <= count, Exit::device,
        "device.kind: cuda: {} ranks on this host, and {} GPU{}{}; start one rank per GPU", claim.local_ranks, count,
        count == 1 ? "" : "s", filter);
}

int current_gpu() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "asking for the GPU");
  return device;
}

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp p;
  check_cuda(cudaGetDeviceProperties(&p, device), "asking what the GPU is");
  return p;
}

void check_kind(const cudaDeviceProp& own, int device) {
  check(own.major >= 8, Exit::device, "device.kind: cuda: GPU {} is {} (sm_{}{}), wanted sm_80 or newer", device,
        own.name, own.major, own.minor);
  for (int other = 0; other < device_count(); ++other) {
    const cudaDeviceProp p = properties_of(other);
    check(p.major == own.major && p.minor == own.minor, Exit::device,
          "device.kind: cuda: GPU {} is {} (sm_{}{}) and GPU {} is {} (sm_{}{}): a run wants GPUs of one kind; choose "
          "them with CUDA_VISIBLE_DEVICES",
          device, own.name, own.major, own.minor, other, p.name, p.major, p.minor);
  }
}

}  // namespace

std::string versions() {
  const int driver = driver_version();
  const std::string blas = cublaslt_version();
  return fmt::format("CUDA {}, driver {}, cuBLASLt {}", version_text(CUDART_VERSION),
                     driver ? version_text(driver) : "none", blas.empty() ? "none" : blas);
}

bool usable() noexcept { return serves(driver_version()) && device_count() > 0; }

void install_kernels(const MatmulPolicy& products) {
  install_cuda_kernels();
  set_matmul_policy(products);
}

bool has_fast_attention(int64_t head_dim) {
  Tensor row = make_tensor(nullptr, DType::bf16, {1, 1, head_dim});
  Attention op;
  op.out = op.q = op.k = op.v = row;
  return attention_path(op) != AttentionPath::generic;
}

std::string claim_gpu(const GpuClaim& claim) {
  check_driver();
  check_count(claim, device_count());
  const cudaDeviceProp p = properties_of(claim.local_rank);
  check_kind(p, claim.local_rank);
  check_cuda(cudaSetDevice(claim.local_rank), "choosing the GPU");
  return fmt::format("{}, sm_{}{}, {:.1f} GiB, ECC {}", p.name, p.major, p.minor,
                     double(p.totalGlobalMem) / double(size_t{1} << 30), p.ECCEnabled ? "on" : "off");
}

std::string gpu_address() {
  char bus[32] = {};
  check_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, current_gpu()), "asking for the GPU's address");
  return fmt::format("GPU {} of host {}", bus, host_name());
}

std::unique_ptr<Memory> open_memory() { return std::make_unique<CudaMemory>(); }
std::unique_ptr<Memory> open_pinned_memory() { return std::make_unique<PinnedMemory>(); }

std::unique_ptr<Device> open_device(const Program& program, std::span<std::byte> arena) {
  return std::make_unique<CudaDevice>(arena, ScratchMap{program.scratch_offset, program.scratch},
                                      CudaOptions{.device = current_gpu(), .events = events_of(program)});
}

std::unique_ptr<Stopwatch> open_stopwatch(Stream& stream) {
  return std::make_unique<CudaStopwatch>(static_cast<cudaStream_t>(stream.native()));
}

size_t used_bytes() {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for the GPU's memory");
  return total - free;
}

}  // namespace trainer::cuda
