// The functions of cuBLASLt for the emulated device.
#include "tests/fakecuda/cublaslt.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cuda/cublaslt_api.h"
#include "tests/fakecuda/fake_cuda.h"

namespace fake {
namespace {

constexpr uint64_t kHandle = 0x1001, kOperation = 0x1002, kLayout = 0x1003, kPreference = 0x1004, kAlgorithm = 0x1005;

struct Handle {
  uint64_t magic;
  int device;
};
struct Preference {
  uint64_t magic;
  uint64_t workspace = 0;
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t align[4] = {256, 256, 256, 256};  // A, B, C, D
};
// In a cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t magic, problem;
  uint32_t id, splits, rounds_part_sums;
  uint32_t align[4];
  uint32_t unused[5];
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

template <class T>
T& object(void* handle, uint64_t magic, const char* what) {
  if (!handle || static_cast<T*>(handle)->magic != magic) fail("cublasLt: %s %p is not one", what, handle);
  return *static_cast<T*>(handle);
}
CublasLtOperation& operation(cublasLtMatmulDesc_t h) { return object<CublasLtOperation>(h, kOperation, "operation"); }
CublasLtLayout& layout(cublasLtMatrixLayout_t h) { return object<CublasLtLayout>(h, kLayout, "layout"); }

template <class T>
cublasStatus_t take(T& to, const void* from, size_t bytes) {
  if (!from || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
void destroy(void* handle, uint64_t magic, const char* what) {
  object<T>(handle, magic, what).magic = 0;
  delete static_cast<T*>(handle);
}

struct Problem {
  CublasLtOperation operation;
  CublasLtLayout a, b, c, d;
};
Problem problem_of(cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  return {operation(op), layout(a), layout(b), layout(c), layout(d)};
}

// Without the address of the bias, which differs from call to call.
uint64_t hash_of(const Problem& p) {
  uint64_t h = 1469598103934665603u;
  const auto add = [&](uint64_t x) { h = (h ^ x) * 1099511628211u; };
  for (int64_t x : {int64_t(p.operation.compute), int64_t(p.operation.transpose_a), int64_t(p.operation.transpose_b),
                    int64_t(p.operation.epilogue)})
    add(uint64_t(x));
  for (const CublasLtLayout* l : {&p.a, &p.b, &p.c, &p.d})
    for (uint64_t x : {uint64_t(l->type), l->rows, l->columns, uint64_t(l->ld)}) add(x);
  return h;
}

// The library's answer to shapes, leading dimensions and types (cuBLAS, cublasLtMatmul, table of regular matrices).
cublasStatus_t supported(const Problem& p) {
  const bool ta = p.operation.transpose_a != CUBLAS_OP_N, tb = p.operation.transpose_b != CUBLAS_OP_N;
  const uint64_t m = ta ? p.a.columns : p.a.rows, k = ta ? p.a.rows : p.a.columns;
  const uint64_t n = tb ? p.b.rows : p.b.columns, k_of_b = tb ? p.b.columns : p.b.rows;
  if (k != k_of_b || m == 0 || n == 0 || k == 0) return CUBLAS_STATUS_INVALID_VALUE;
  for (const CublasLtLayout* l : {&p.c, &p.d})
    if (l->rows != m || l->columns != n) return CUBLAS_STATUS_INVALID_VALUE;
  for (const CublasLtLayout* l : {&p.a, &p.b, &p.c, &p.d}) {
    if (l->ld < int64_t(l->rows)) return CUBLAS_STATUS_INVALID_VALUE;
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (l->ld > kMost || int64_t(l->columns) > kMost) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (p.operation.epilogue == CUBLASLT_EPILOGUE_BIAS && !p.operation.bias) return CUBLAS_STATUS_INVALID_VALUE;
  const bool types = p.a.type == p.b.type && p.c.type == p.d.type && p.operation.scale == CUDA_R_32F;
  const bool f32 = p.a.type == CUDA_R_32F && p.d.type == CUDA_R_32F;
  const bool bf16 = p.a.type == CUDA_R_16BF && (p.d.type == CUDA_R_16BF || p.d.type == CUDA_R_32F);
  const bool compute = p.operation.compute == CUBLAS_COMPUTE_32F
                           ? f32 || bf16
                           : p.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && f32;
  return types && compute ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

size_t workspace_of(const Algorithm& a, const Problem& p) {
  return a.splits == 1 ? 0 : size_t(p.d.rows * p.d.columns * a.splits) * sizeof(float);
}

void check_aligned(const void* p, size_t bytes, const char* what) {
  if (uintptr_t(p) % bytes) fail("cublasLtMatmul: %s %p is not aligned to %zu bytes", what, p, bytes);
}
void check_operands(const Problem& p, const CublasLtProduct& x, const Algorithm& algorithm) {
  const struct {
    const char* name;
    const void* data;
    const CublasLtLayout& layout;
  } operands[] = {{"A", x.a_data, p.a}, {"B", x.b_data, p.b}, {"C", x.c_data, p.c}, {"D", x.d_data, p.d}};
  for (int i = 0; i < 4; ++i) {
    check_dev(operands[i].data, operands[i].layout.span(), "cublasLtMatmul operand");
    check_aligned(operands[i].data, algorithm.align[i], operands[i].name);
  }
  const char *d = static_cast<const char*>(x.d_data), *d_end = d + p.d.span();
  for (int i = 0; i < 3; ++i) {  // of what has no gaps, in which others may lie
    const auto* begin = static_cast<const char*>(operands[i].data);
    const bool in_place = i == 2 && begin == d && p.c.ld == p.d.ld;
    const bool dense = p.d.ld == int64_t(p.d.rows) && operands[i].layout.ld == int64_t(operands[i].layout.rows);
    if (!in_place && dense && begin < d_end && begin + operands[i].layout.span() > d)
      fail("cublasLtMatmul: D overlaps %s", operands[i].name);
  }
  if (p.operation.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    check_dev(p.operation.bias, p.d.rows * p.d.element(), "cublasLtMatmul bias");
    check_aligned(p.operation.bias, 16, "bias");
  }
}

}  // namespace

CublasLtSettings& cublaslt_settings() {
  static CublasLtSettings settings;
  return settings;
}

}  // namespace fake
using namespace fake;

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  auto* made = new Handle{kHandle, 0};
  cudaGetDevice(&made->device);
  *h = reinterpret_cast<cublasLtHandle_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  destroy<Handle>(h, kHandle, "handle");
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusString(cublasStatus_t s) {
  return s == CUBLAS_STATUS_NOT_SUPPORTED   ? "not supported"
         : s == CUBLAS_STATUS_INVALID_VALUE ? "invalid value"
                                            : "another status of the shim";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* h, cublasComputeType_t compute, cudaDataType_t scale) {
  *h = reinterpret_cast<cublasLtMatmulDesc_t>(new CublasLtOperation{kOperation, compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t h) {
  destroy<CublasLtOperation>(h, kOperation, "operation");
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t h, cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  CublasLtOperation& op = operation(h);
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(op.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(op.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(op.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: {
      const cublasStatus_t status = take(op.epilogue, value, bytes);
      if (op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && op.epilogue != CUBLASLT_EPILOGUE_BIAS)
        fail("cublasLt: the epilogue %u is not built into the shim", op.epilogue);
      return status;
    }
    default: fail("cublasLt: the attribute %d of an operation is not built into the shim", int(name));
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* h, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t ld) {
  if (type != CUDA_R_32F && type != CUDA_R_16BF) fail("cublasLt: the type %d is not built into the shim", int(type));
  *h = reinterpret_cast<cublasLtMatrixLayout_t>(new CublasLtLayout{kLayout, type, rows, columns, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t h) {
  destroy<CublasLtLayout>(h, kLayout, "layout");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* h) {
  *h = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference{kPreference});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t h) {
  destroy<Preference>(h, kPreference, "preference");
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t h,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void* value,
                                                    size_t bytes) {
  auto& p = object<Preference>(h, kPreference, "preference");
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(p.reduction, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(p.align[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(p.align[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(p.align[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(p.align[3], value, bytes);
    default: fail("cublasLt: the preference %d is not built into the shim", int(name));
  }
}

// First an algorithm that splits k in two, then one that does not, then one that splits it in three.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int at_most, cublasLtMatmulHeuristicResult_t results[], int* count) {
  object<Handle>(h, kHandle, "handle");
  const auto& wanted = object<Preference>(preference, kPreference, "preference");
  *count = 0;
  if (at_most <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem p = problem_of(op, a, b, c, d);
  if (const cublasStatus_t status = supported(p); status != CUBLAS_STATUS_SUCCESS) return status;
  constexpr uint32_t kSplits[] = {2, 1, 3};
  const bool rounds = (wanted.reduction & ~uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) != 0;
  for (uint32_t id = 0; id < 3 && *count < std::min(at_most, cublaslt_settings().suggested); ++id) {
    Algorithm algorithm{kAlgorithm, hash_of(p), id, kSplits[id], rounds, {}, {}};
    std::copy(std::begin(wanted.align), std::end(wanted.align), algorithm.align);
    if (workspace_of(algorithm, p) > wanted.workspace || (algorithm.splits > 1 && wanted.reduction == 0)) continue;
    cublasLtMatmulHeuristicResult_t& r = results[(*count)++];
    r = {};
    std::memcpy(&r.algo, &algorithm, sizeof algorithm);
    r.workspaceSize = workspace_of(algorithm, p);
    r.state = CUBLAS_STATUS_SUCCESS;
  }
  return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  object<Handle>(h, kHandle, "handle");
  const Problem p = problem_of(op, a, b, c, d);
  Algorithm chosen;
  std::memcpy(&chosen, algorithm, sizeof chosen);
  if (chosen.magic != kAlgorithm || chosen.problem != hash_of(p)) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = workspace_of(chosen, p);
  return supported(p);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t op, const void* alpha, const void* a_data,
                              cublasLtMatrixLayout_t a, const void* b_data, cublasLtMatrixLayout_t b, const void* beta,
                              const void* c_data, cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  int device = 0;
  cudaGetDevice(&device);
  if (object<Handle>(h, kHandle, "handle").device != device) fail("cublasLtMatmul: the handle is of another device");
  const Problem p = problem_of(op, a, b, c, d);
  if (const cublasStatus_t status = supported(p); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!algorithm) fail("cublasLtMatmul: no algorithm is given");
  Algorithm chosen;
  std::memcpy(&chosen, algorithm, sizeof chosen);
  if (chosen.magic != kAlgorithm || chosen.problem != hash_of(p))
    fail("cublasLtMatmul: the algorithm was not suggested for this problem");
  if (workspace_of(chosen, p) > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  const CublasLtProduct product{p.operation,
                                p.a,
                                p.b,
                                p.c,
                                p.d,
                                a_data,
                                b_data,
                                c_data,
                                d_data,
                                workspace,
                                *static_cast<const float*>(alpha),
                                *static_cast<const float*>(beta),
                                int(chosen.id),
                                int(chosen.splits),
                                chosen.rounds_part_sums != 0};
  check_operands(p, product, chosen);
  if (workspace_bytes) {
    check_dev(workspace, workspace_bytes, "cublasLtMatmul workspace");
    check_aligned(workspace, 256, "workspace");
  }
  const cudaError_t enqueued = enqueue(stream, {"cublasLtMatmul", [product] { multiply(product); }, {}});
  return enqueued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}

namespace trainer::cuda {

const CublasLt& cublaslt() {
  static const CublasLt api = [] {
    CublasLt a;
#define TRAINER_CUBLASLT_SET(name) a.name = &::name;
    TRAINER_CUBLASLT_FUNCTIONS(TRAINER_CUBLASLT_SET)
#undef TRAINER_CUBLASLT_SET
    return a;
  }();
  return api;
}
std::string cublaslt_version() { return "of the emulated device"; }

}  // namespace trainer::cuda
