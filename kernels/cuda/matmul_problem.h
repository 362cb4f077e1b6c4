// All that the choice of an algorithm depends on, and cuBLASLt's descriptions of it.
//
// cuBLASLt's matrices are column-major, so it is given the transposed product: its D is c^T = op(b)^T op(a)^T, its A is
// our b and its B is our a. A row-major matrix [rows, columns] is a column-major [columns, rows] with the row stride as
// leading dimension, and a bias per column of c is one per row of D.
#pragma once
#include <compare>
#include <string>
#include <vector>

#include "core/ops/matmul.h"
#include "kernels/cuda/cublaslt_api.h"

namespace trainer::cuda {

struct MatmulProblem {
  int64_t m = 0, n = 0, k = 0;
  DType in = DType::bf16, out = DType::bf16;
  bool transpose_a = false, transpose_b = false, bias = false, tf32 = false;
  enum class Add : uint8_t { nothing, c, residual } add = Add::nothing;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0, stride_added = 0;  // row strides in elements
  // Bytes to which pointers are aligned, 16 at most: no instruction of a GPU wants more of global memory.
  int align_a = 0, align_b = 0, align_c = 0, align_added = 0;

  auto operator<=>(const MatmulProblem&) const = default;
};
// `tf32`: of the policy; it counts for f32 factors only.
MatmulProblem problem_of(const MatMul&, bool tf32);
// In one line without '|': the problem's name in a file.
std::string text_of(const MatmulProblem&);

struct MatmulAlgorithm {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;  // bytes
};

class MatmulDescriptors {
 public:
  explicit MatmulDescriptors(const MatmulProblem&);
  ~MatmulDescriptors();
  MatmulDescriptors(const MatmulDescriptors&) = delete;
  MatmulDescriptors& operator=(const MatmulDescriptors&) = delete;

  // What cuBLASLt suggests, the best guess first; empty where it has none. Split sums are added in f32, so that a
  // result is rounded once.
  std::vector<MatmulAlgorithm> candidates(cublasLtHandle_t, const MatMul&, int at_most) const;
  // Whether an algorithm read from a file fits the problem, and this GPU.
  bool fits(cublasLtHandle_t, const MatMul&, const MatmulAlgorithm&) const;
  // Enqueues the product. `workspace` is 256-byte aligned and has at least the algorithm's bytes.
  cublasStatus_t multiply(cublasLtHandle_t, const MatMul&, const MatmulAlgorithm&, void* workspace, cudaStream_t) const;

 private:
  void set_bias(const MatMul&) const;

  const MatmulProblem problem_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr, added_ = nullptr;
};

// Throws Error(device) unless the call succeeded.
void check_cublaslt(cublasStatus_t, const char* call);

}  // namespace trainer::cuda
