// The shim of cuBLASLt against a double loop, and that it refuses what the library would.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "kernels/cuda/cublaslt_api.h"
#include "tests/cuda/matmul_settings.h"
#include "tests/fakecuda/fake_cuda.h"
#include "tests/support/buffer.h"
#include "tests/support/compare.h"

using namespace trainer;
using namespace trainer::test;

namespace {

cudaDataType_t cuda_type(DType t) { return t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// Column-major: columns are the buffer's rows.
struct Matrix {
  Matrix(DType t, int64_t r, int64_t c, uint32_t seed, int64_t gap = 0)
      : rows(r), columns(c), buffer(random_buffer(t, {c, r}, seed, 1, {.gap = gap})), values(buffer.values()) {
    REQUIRE(cublasLtMatrixLayoutCreate(&layout, cuda_type(t), uint64_t(r), uint64_t(c), r + gap) ==
            CUBLAS_STATUS_SUCCESS);
  }
  ~Matrix() { cublasLtMatrixLayoutDestroy(layout); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  double at(int64_t i, int64_t j, bool transposed = false) const {
    return values[size_t(transposed ? i * rows + j : j * rows + i)];
  }
  void* data() const { return buffer.tensor().data; }

  int64_t rows, columns;
  Buffer buffer;
  Values values;  // as they were at first
  cublasLtMatrixLayout_t layout = nullptr;
};

struct Case {
  DType in = DType::f32, out = DType::f32;
  bool ta = false, tb = false, bias = false, in_place = false;
  float alpha = 1, beta = 0;
  int64_t gap = 0;
};

// D [13, 7] = alpha op(A) op(B) + beta C + bias, k = 29.
class Call {
 public:
  explicit Call(const Case& c)
      : what(c),
        a(c.in, c.ta ? 29 : 13, c.ta ? 13 : 29, 1, c.gap),
        b(c.in, c.tb ? 7 : 29, c.tb ? 29 : 7, 2, c.gap),
        c(c.out, 13, 7, 3, 2 * c.gap),
        d(c.out, 13, 7, 4, c.gap),
        bias(random_buffer(c.out, {13}, 5)),
        workspace(DType::u8, {int64_t(kWorkspace)}) {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_TRANSA, c.ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, c.tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (c.bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    if (c.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.tensor().data));
    cublasLtMatmulPreferenceCreate(&preference);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(kWorkspace));
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (auto name : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(name, uint32_t(16));
    void* p = workspace.tensor().data;
    size_t space = kWorkspace;
    workspace_data = std::align(256, kWorkspace - 256, p, space);
  }
  ~Call() {
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(handle);
  }
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t name, Value value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  }
  template <class Value>
  void prefer(cublasLtMatmulPreferenceAttributes_t name, Value value) {
    REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  }
  Matrix& third() { return what.in_place ? d : c; }
  cublasStatus_t suggest() {
    return cublasLtMatmulAlgoGetHeuristic(handle, operation, a.layout, b.layout, third().layout, d.layout, preference,
                                          3, suggested, &count);
  }
  cublasStatus_t multiply(int algorithm, size_t workspace_bytes = kWorkspace - 256, size_t off = 0) {
    const cublasStatus_t status =
        cublasLtMatmul(handle, operation, &what.alpha, static_cast<char*>(a.data()) + off, a.layout, b.data(), b.layout,
                       &what.beta, third().data(), third().layout, d.data(), d.layout, &suggested[algorithm].algo,
                       workspace_data, workspace_bytes, nullptr);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    return status;
  }
  Values wanted() {
    Values w;
    const Values added = bias.values();
    for (int64_t j = 0; j < 7; ++j)
      for (int64_t i = 0; i < 13; ++i) {
        double sum = 0;
        for (int64_t l = 0; l < 29; ++l) sum += a.at(i, l, what.ta) * b.at(l, j, what.tb);
        w.push_back(what.alpha * sum + what.beta * third().at(i, j) + (what.bias ? added[size_t(i)] : 0));
      }
    return w;
  }

  static constexpr size_t kWorkspace = 65536;
  const Case what;
  Matrix a, b, c, d;
  Buffer bias, workspace;
  void* workspace_data = nullptr;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t suggested[3] = {};
  int count = 0;
};

// Whether the shim ends the process.
bool fatal(const std::function<void()>& call) {
  const pid_t child = fork();
  if (child == 0) {
    freopen("/dev/null", "w", stderr);
    call();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == fake::kWrongProgram;
}

}  // namespace

TEST_CASE("shim of cuBLASLt: every algorithm against a double loop") {
  const MatmulSettings settings;
  struct Types {
    DType in, out;
  };
  for (const Types t : {Types{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
    for (int variant = 0; variant < 32; ++variant)
      for (int algorithm : {0, 1, 2}) {
        const bool ta = variant & 1, tb = variant & 2, bias = variant & 4, in_place = variant & 8, add = variant & 16;
        Call call({t.in, t.out, ta, tb, bias, in_place, add ? 0.5f : 1.0f, add ? 2.0f : 0.0f, variant % 3});
        CAPTURE(name_of(t.in), name_of(t.out), variant, algorithm);
        REQUIRE(call.suggest() == CUBLAS_STATUS_SUCCESS);
        REQUIRE(call.count == 3);
        REQUIRE(call.multiply(algorithm) == CUBLAS_STATUS_SUCCESS);
        require_close(call.d.buffer, call.wanted(), rounded_once(t.out, 6));
      }
}

TEST_CASE("shim of cuBLASLt: algorithms differ in their last bits, and part sums in d's type in more") {
  const MatmulSettings settings;
  const auto result = [](const Case& c, int algorithm, uint32_t reduction) {
    Call call(c);
    call.prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction);
    REQUIRE(call.suggest() == CUBLAS_STATUS_SUCCESS);
    REQUIRE(call.multiply(algorithm) == CUBLAS_STATUS_SUCCESS);
    return call.d.buffer.values();
  };
  const Case f32, bf16{DType::bf16, DType::bf16};
  REQUIRE(result(f32, 0, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) !=
          result(f32, 1, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  REQUIRE(result(bf16, 0, CUBLASLT_REDUCTION_SCHEME_MASK) != result(bf16, 0, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
}

TEST_CASE("shim of cuBLASLt: statuses for what the library does not compute") {
  const MatmulSettings settings;
  REQUIRE(Call({DType::f32, DType::bf16}).suggest() == CUBLAS_STATUS_NOT_SUPPORTED);
  Call tall({});
  tall.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  REQUIRE(tall.suggest() == CUBLAS_STATUS_INVALID_VALUE);
  Call call({});
  call.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(0));
  REQUIRE(call.suggest() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(call.count == 1);
  REQUIRE(call.suggested[0].workspaceSize == 0);
  call.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(4096));
  REQUIRE(call.suggest() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(call.multiply(0, call.suggested[0].workspaceSize - 1) == CUBLAS_STATUS_INVALID_VALUE);
  const uint8_t small = 1;
  REQUIRE(cublasLtMatmulDescSetAttribute(call.operation, CUBLASLT_MATMUL_DESC_TRANSA, &small, 1) ==
          CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("shim of cuBLASLt: a call that the library would answer with a fault or wrong numbers ends the process") {
  const MatmulSettings settings;
  Call call({.gap = 3}), other({.ta = true, .gap = 3});
  REQUIRE(call.suggest() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(other.suggest() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(!fatal([&] { call.multiply(0); }));
  REQUIRE(fatal([&] { call.multiply(0, Call::kWorkspace - 256, 4); }));  // A off its alignment
  REQUIRE(fatal([&] { call.multiply(0, Call::kWorkspace - 256, 1 << 20); }));
  REQUIRE(fatal([&] { call.multiply(0, 2 * Call::kWorkspace); }));
  REQUIRE(fatal([&] {
    call.workspace_data = static_cast<char*>(call.workspace_data) + 128;
    call.multiply(0, 4096);
  }));
  REQUIRE(fatal([&] {
    call.suggested[0] = other.suggested[0];
    call.multiply(0);
  }));
  REQUIRE(fatal([&] { call.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(1)); }));
  REQUIRE(fatal([&] { call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU); }));
  REQUIRE(fatal([&] { call.prefer(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, 1.0f); }));
  REQUIRE(fatal([&] {
    cudaSetDevice(1);
    call.multiply(0);
  }));
  REQUIRE(fatal([&] { cublasLtMatmulDescDestroy(reinterpret_cast<cublasLtMatmulDesc_t>(call.a.layout)); }));
}
