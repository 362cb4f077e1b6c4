#include "kernels/cuda/matmul.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>

#include "core/base/error.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/matmul_algorithms.h"
#include "kernels/cuda/matmul_plain.h"
#include "kernels/cuda/matmul_search.h"

namespace trainer::cuda {
namespace {

constexpr size_t kWorkspaceAlign = 256;  // a lane's scratch has 128

MatmulPolicy& policy() {
  static MatmulPolicy set;
  return set;
}
MatmulAlgorithms& algorithms() {
  static MatmulAlgorithms known;
  return known;
}

struct Prepared {
  int64_t searched = 0;
  std::set<std::string> plain;
};
Prepared& prepared() {
  static thread_local Prepared seen;
  return seen;
}

struct Gpu {
  cublasLtHandle_t handle = nullptr;
  std::string name;
};
int current_ordinal() {
  int ordinal = 0;
  check(cudaGetDevice(&ordinal) == cudaSuccess, Exit::device, "[cuda] no GPU is current");
  return ordinal;
}
// The GPU that the calling thread uses. Handles live as long as the process: the driver may be gone when statics are
// destroyed.
const Gpu& current_gpu(int ordinal) {
  static std::mutex mutex;
  static auto& gpus = *new std::map<int, Gpu>;
  const std::lock_guard lock(mutex);
  Gpu& gpu = gpus[ordinal];
  if (!gpu.handle) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal) == cudaSuccess, Exit::device,
          "[cuda] GPU {} does not tell its name", ordinal);
    gpu.name = properties.name;
    check_cublaslt(cublaslt().cublasLtCreate(&gpu.handle), "cublasLtCreate");
  }
  return gpu;
}

// A problem as one thread runs it on one GPU: descriptors carry the address of the bias from call to call.
struct Chosen {
  Chosen(const Gpu& g, const MatmulProblem& p)
      : gpu(g), key{g.name, cublaslt().cublasLtGetVersion(), text_of(p)}, descriptors(p) {}

  const Gpu& gpu;
  const AlgorithmKey key;
  MatmulDescriptors descriptors;
  std::optional<MatmulAlgorithm> algorithm;  // none: cuBLASLt suggests none
};

std::optional<MatmulAlgorithm> choose(const Chosen& c, const MatMul& op) {
  if (const auto known = algorithms().find(c.key)) {
    check(c.descriptors.fits(c.gpu.handle, op, known->algorithm), Exit::spec,
          "{}: cuBLASLt does not take this algorithm for '{}'; remove the line to search again", known->origin,
          c.key.problem);
    return known->algorithm;
  }
  const auto suggested = c.descriptors.candidates(c.gpu.handle, op, 1);
  return suggested.empty() ? std::nullopt : std::optional(suggested[0]);
}

Chosen& chosen_for(const MatMul& op) {
  static thread_local std::map<std::pair<int, MatmulProblem>, std::unique_ptr<Chosen>> all;
  static thread_local uint64_t version = 0;
  if (version != algorithms().version()) all.clear();
  version = algorithms().version();
  const int ordinal = current_ordinal();
  const MatmulProblem problem = problem_of(op, policy().tf32);
  auto& found = all[{ordinal, problem}];
  if (!found) {
    auto fresh = std::make_unique<Chosen>(current_gpu(ordinal), problem);
    fresh->algorithm = choose(*fresh, op);
    found = std::move(fresh);
  }
  return *found;
}

// In the lane's scratch.
void* workspace_of(Stream& stream, const MatMul& op) {
  const std::span<std::byte> scratch = stream.scratch();
  void* data = scratch.data();
  size_t space = scratch.size();
  check(std::align(kWorkspaceAlign, matmul_workspace(op.m(), op.n()), data, space), Exit::device,
        "matmul: wanted {} bytes of scratch, found {}", scratch_bytes(op), scratch.size());
  return data;
}

bool has_cublaslt_dtypes(const MatMul& op) { return op.a.dtype == DType::bf16 || op.c.dtype == DType::f32; }

bool by_cublaslt(const MatMul& op) {
  check_operands(op);
  return op.m() > 0 && op.n() > 0 && matmul_path(op) == MatmulPath::cublaslt;
}

}  // namespace

MatmulPath matmul_path(const MatMul& op) {
  const auto fits_int = [](int64_t x) { return x <= std::numeric_limits<int32_t>::max(); };
  const bool sizes = fits_int(op.m()) && fits_int(op.n()) && fits_int(op.k()) && fits_int(op.a.stride()) &&
                     fits_int(op.b.stride()) && fits_int(op.c.stride()) && fits_int(op.residual.stride());
  const bool bias = !op.bias || (op.bias.dtype == op.c.dtype && reinterpret_cast<uintptr_t>(op.bias.data) % 16 == 0);
  return sizes && bias && has_cublaslt_dtypes(op) ? MatmulPath::cublaslt : MatmulPath::plain;
}

void set_matmul_policy(MatmulPolicy p) { policy() = p; }
MatmulPolicy matmul_policy() { return policy(); }

void set_algorithms(std::string_view text, const std::string& origin) {
  algorithms().set(text, origin);
  if (text.empty()) return;
  const std::string gpu = current_gpu(current_ordinal()).name;
  const size_t version = cublaslt().cublasLtGetVersion();
  const std::string other = algorithms().foreign_to(gpu, version);
  check(other.empty(), Exit::spec,
        "{}: its algorithms are of {}, and this is {} with cuBLASLt {}: name another file in device.heuristics, or "
        "remove this one to search again",
        origin, other, gpu, version);
}
void add_algorithms(std::string_view text) { algorithms().add(text); }
std::string all_algorithms() { return algorithms().text(); }
std::string found_algorithms() { return algorithms().found_text(); }

PreparedProducts take_prepared_products() {
  const auto& [searched, plain] = prepared();
  const PreparedProducts taken{searched, {plain.begin(), plain.end()}};
  prepared() = {};
  return taken;
}

void prepare(Stream& stream, const MatMul& op) {
  check_operands(op);
  if (op.m() == 0 || op.n() == 0) return;
  if (!by_cublaslt(op) || !chosen_for(op).algorithm) {
    prepared().plain.insert(text_of(problem_of(op, policy().tf32)));
    return;
  }
  const Chosen& c = chosen_for(op);
  if (!policy().search || algorithms().find(c.key)) return;
  const auto cuda_stream = static_cast<cudaStream_t>(stream.native());
  const auto found = fastest(c.gpu.handle, c.descriptors, op, workspace_of(stream, op), cuda_stream);
  algorithms().put(c.key, found);
  ++prepared().searched;
  chosen_for(op);
}

// Not of addresses: where a tensor lies is not known when the arena is planned.
size_t scratch_bytes(const MatMul& op) {
  return has_cublaslt_dtypes(op) ? matmul_workspace(op.m(), op.n()) + kWorkspaceAlign : 0;
}

void run(Stream& stream, const MatMul& op) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream.native());
  if (by_cublaslt(op)) {
    const Chosen& c = chosen_for(op);
    if (c.algorithm)
      return check_cublaslt(
          c.descriptors.multiply(c.gpu.handle, op, *c.algorithm, workspace_of(stream, op), cuda_stream),
          "cublasLtMatmul");
  }
  if (op.m() > 0 && op.n() > 0) multiply_plain(cuda_stream, op);
}

}  // namespace trainer::cuda
