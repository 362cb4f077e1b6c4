// Dense products on a GPU: which of them cuBLASLt computes, and how its algorithm is chosen.
//
// Without a file of algorithms (kernels/cuda/algorithms.h) a problem takes the first that cuBLASLt suggests: the same
// in every run. With one (device.heuristics) `prepare` times what cuBLASLt suggests, once per problem, and later runs
// read what was fastest.
#pragma once
#include <algorithm>

#include "core/ops/matmul.h"
#include "kernels/cuda/algorithms.h"

namespace trainer::cuda {

// The workspace of a product [m, n] in bytes: sixteen part sums of c and room for counters, in steps of 256 KiB, at
// most what NVIDIA recommends for Hopper (cuBLAS, cublasSetWorkspace: 32 MiB; 4 MiB before it). It is lane scratch:
// products on different lanes have their own.
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

void set_matmul_policy(MatmulPolicy);  // before the first product
MatmulPolicy matmul_policy();

// Before step 0, once per distinct product: finds its algorithm, so that the step neither searches nor allocates. What
// `c` held is lost where the policy is to search, and the host waits for the stream. Operands are timed as they are:
// before step 0 they are zeros, on which a GPU may clock higher than on a model's numbers.
void prepare(Stream&, const MatMul&);

}  // namespace trainer::cuda
