#include "kernels/cuda/matmul_problem.h"

#include <algorithm>
#include <bit>

#include "core/base/error.h"
#include "kernels/cuda/matmul.h"

namespace trainer::cuda {
namespace {

cudaDataType_t cuda_type(DType t) { return t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

int alignment_of(const Tensor& t) {
  const auto address = reinterpret_cast<uintptr_t>(t.data);
  return int(std::min<uintptr_t>(16, address & -address));
}

template <class Value>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name, Value value) {
  check_cublaslt(cublaslt().cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
}

// Of a row-major matrix [rows, columns].
cublasLtMatrixLayout_t layout_of(DType t, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublaslt(
      cublaslt().cublasLtMatrixLayoutCreate(&layout, cuda_type(t), uint64_t(columns), uint64_t(rows), stride),
      "cublasLtMatrixLayoutCreate");
  return layout;
}

class Preference {
 public:
  explicit Preference(const MatmulProblem& p) {
    check_cublaslt(cublaslt().cublasLtMatmulPreferenceCreate(&handle_), "cublasLtMatmulPreferenceCreate");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(matmul_workspace(p.m, p.n)));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(p.align_b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(p.align_a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(p.align_added));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(p.align_c));
  }
  ~Preference() { cublaslt().cublasLtMatmulPreferenceDestroy(handle_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return handle_; }

 private:
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t name, Value value) {
    check_cublaslt(cublaslt().cublasLtMatmulPreferenceSetAttribute(handle_, name, &value, sizeof value),
                   "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreference_t handle_ = nullptr;
};

}  // namespace

void check_cublaslt(cublasStatus_t status, const char* call) {
  check(status == CUBLAS_STATUS_SUCCESS, Exit::device, "[cuda] {} failed: {}", call,
        cublaslt().cublasLtGetStatusString(status));
}

MatmulProblem problem_of(const MatMul& op, bool tf32) {
  const Tensor& added = op.residual ? op.residual : op.c;  // c where nothing is added: it is described, not read
  MatmulProblem p;
  p.m = op.m();
  p.n = op.n();
  p.k = op.k();
  p.in = op.a.dtype;
  p.out = op.c.dtype;
  p.transpose_a = op.transpose_a;
  p.transpose_b = op.transpose_b;
  p.bias = bool(op.bias);
  p.tf32 = tf32 && p.in == DType::f32;
  p.add = op.accumulate ? MatmulProblem::Add::c
          : op.residual ? MatmulProblem::Add::residual
                        : MatmulProblem::Add::nothing;
  p.stride_a = op.a.stride();
  p.stride_b = op.b.stride();
  p.stride_c = op.c.stride();
  p.stride_added = added.stride();
  p.align_a = alignment_of(op.a);
  p.align_b = alignment_of(op.b);
  p.align_c = alignment_of(op.c);
  p.align_added = alignment_of(added);
  return p;
}

std::string text_of(const MatmulProblem& p) {
  constexpr const char* kAdded[] = {"nothing", "c", "residual"};
  return fmt::format("{}{} to {} m {} n {} k {} {}{} add {}{} strides {} {} {} {} align {} {} {} {}", name_of(p.in),
                     p.tf32 ? " as tf32" : "", name_of(p.out), p.m, p.n, p.k, p.transpose_a ? 'T' : 'N',
                     p.transpose_b ? 'T' : 'N', kAdded[size_t(p.add)], p.bias ? " bias" : "", p.stride_a, p.stride_b,
                     p.stride_c, p.stride_added, p.align_a, p.align_b, p.align_c, p.align_added);
}

MatmulDescriptors::MatmulDescriptors(const MatmulProblem& p) : problem_(p) {
  check_cublaslt(cublaslt().cublasLtMatmulDescCreate(
                     &operation_, p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  a_ = p.transpose_a ? layout_of(p.in, p.k, p.m, p.stride_a) : layout_of(p.in, p.m, p.k, p.stride_a);
  b_ = p.transpose_b ? layout_of(p.in, p.n, p.k, p.stride_b) : layout_of(p.in, p.k, p.n, p.stride_b);
  c_ = layout_of(p.out, p.m, p.n, p.stride_c);
  added_ = layout_of(p.out, p.m, p.n, p.stride_added);
}

MatmulDescriptors::~MatmulDescriptors() {
  for (cublasLtMatrixLayout_t layout : {a_, b_, c_, added_}) cublaslt().cublasLtMatrixLayoutDestroy(layout);
  cublaslt().cublasLtMatmulDescDestroy(operation_);
}

void MatmulDescriptors::set_bias(const MatMul& op) const {
  if (problem_.bias) set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(op.bias.data));
}

std::vector<MatmulAlgorithm> MatmulDescriptors::candidates(cublasLtHandle_t handle, const MatMul& op,
                                                           int at_most) const {
  set_bias(op);
  const Preference preference(problem_);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(at_most));
  int count = 0;
  const cublasStatus_t status = cublaslt().cublasLtMatmulAlgoGetHeuristic(
      handle, operation_, b_, a_, added_, c_, preference.get(), at_most, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check_cublaslt(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<MatmulAlgorithm> found;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& r = results[size_t(i)];
    if (r.state == CUBLAS_STATUS_SUCCESS && r.workspaceSize <= matmul_workspace(problem_.m, problem_.n))
      found.push_back({r.algo, r.workspaceSize});
  }
  return found;
}

bool MatmulDescriptors::fits(cublasLtHandle_t handle, const MatMul& op, const MatmulAlgorithm& a) const {
  set_bias(op);
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublaslt().cublasLtMatmulAlgoCheck(handle, operation_, b_, a_, added_, c_, &a.algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= a.workspace &&
         a.workspace <= matmul_workspace(problem_.m, problem_.n);
}

cublasStatus_t MatmulDescriptors::multiply(cublasLtHandle_t handle, const MatMul& op, const MatmulAlgorithm& a,
                                           void* workspace, cudaStream_t stream) const {
  set_bias(op);
  const float one = 1, beta = problem_.add == MatmulProblem::Add::nothing ? 0 : 1;
  const std::byte* added = op.residual ? op.residual.data : op.c.data;
  return cublaslt().cublasLtMatmul(handle, operation_, &one, op.b.data, b_, op.a.data, a_, &beta, added, added_,
                                   op.c.data, c_, &a.algorithm, workspace, a.workspace, stream);
}

}  // namespace trainer::cuda
