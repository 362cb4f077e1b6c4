// What a binary says that is built where no CUDA toolkit was found.
#include "kernels/cuda/backend.h"

#include "core/base/error.h"

namespace trainer::cuda {
namespace {

[[noreturn]] void refuse() {
  fail(Exit::device,
       "device.kind: cuda: this binary is built without CUDA; use device.kind=cpu, or build it where the CUDA toolkit "
       "is (CUDA_HOME)");
}

}  // namespace

std::string versions() { return "CUDA: built without"; }
bool usable() noexcept { return false; }
void install_kernels(const MatmulPolicy&) { refuse(); }
bool has_fast_attention(int64_t) { return false; }
std::string claim_gpu(const GpuClaim&) { refuse(); }
std::string gpu_address() { refuse(); }
void set_algorithms(std::string_view, const std::string&) { refuse(); }
void add_algorithms(std::string_view) { refuse(); }
std::string all_algorithms() { refuse(); }
std::string found_algorithms() { refuse(); }
PreparedProducts take_prepared_products() { refuse(); }
std::unique_ptr<Memory> open_memory() { refuse(); }
std::unique_ptr<Memory> open_pinned_memory() { refuse(); }
std::unique_ptr<Device> open_device(const Program&, std::span<std::byte>) { refuse(); }
std::unique_ptr<Stopwatch> open_stopwatch(Stream&) { refuse(); }
size_t used_bytes() { refuse(); }

}  // namespace trainer::cuda
