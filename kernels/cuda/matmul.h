// Dense products on a GPU: which of them cuBLASLt computes, and how its algorithm is chosen.
//
// Without a file of algorithms a problem takes the first that cuBLASLt suggests: the same in every run. With one
// (device.heuristics) `prepare` times what cuBLASLt suggests, once per problem, and later runs read what was fastest.
#pragma once
#include <algorithm>
#include <string>

#include "core/ops/matmul.h"

namespace trainer::cuda {

// The workspace of a product [m, n] in bytes: sixteen part sums of c and room for counters, in steps of 256 KiB, at most
// what NVIDIA recommends for Hopper (cuBLAS, cublasSetWorkspace: 32 MiB; 4 MiB before it). It is lane scratch: products
// on different lanes have their own.
inline constexpr size_t kMostWorkspace = size_t(32) << 20, kWorkspaceStep = size_t(256) << 10;
constexpr size_t matmul_workspace(int64_t m, int64_t n) {
  const size_t part_sums = 16 * sizeof(float) * size_t(m) * size_t(n);
  return std::min(kMostWorkspace, (1 + (part_sums + kWorkspaceStep - 1) / kWorkspaceStep) * kWorkspaceStep);
}

enum class MatmulPath { cublaslt, plain };

// Where a product runs. A function of dtypes, sizes and the bias's alignment:
//   - cuBLASLt multiplies bf16 to bf16 or f32, and f32 to f32, with a bias of c's dtype (cuBLAS, cublasLtMatmul, table
//   of
//     regular matrices); its sizes and leading dimensions are 32-bit; a bias is read 16 bytes at a time.
//   - what is left runs on a plain kernel: correct, far from the GPU's peak.
// A product whose rows or factors are not aligned to 16 bytes is cuBLASLt's, as long as it suggests an algorithm for
// it; `run` falls back to the plain kernel where it does not.
MatmulPath matmul_path(const MatMul&);

struct MatmulPolicy {
  bool tf32 = false;    // f32 factors are rounded to 10 bits of mantissa
  bool search = false;  // `prepare` times algorithms
};
void set_matmul_policy(MatmulPolicy);  // before the first product
MatmulPolicy matmul_policy();

// Before step 0, once per distinct product: finds its algorithm, so that the step neither searches nor allocates. What
// `c` held is lost where the policy is to search, and the host waits for the stream.
void prepare(Stream&, const MatMul&);

// Replaces the algorithms that are known by those of a file; false, and nothing is known, where there is no such file.
// Those of other GPUs and other versions of cuBLASLt are kept, not used. Throws Error(spec) that names file and line.
bool load_heuristics(const std::string& path);
// Writes what was loaded and found; the file appears whole. Throws Error(spec) where it cannot.
void save_heuristics(const std::string& path);

}  // namespace trainer::cuda
