// The real library, on a machine that need not have a GPU: it loads, and takes every attribute that is set.
#include "kernels/cuda/cublaslt_api.h"

#include <catch2/catch.hpp>
#include <regex>

#include "core/base/error.h"
#include "kernels/cuda/matmul_problem.h"

using namespace trainer;
using namespace trainer::cuda;

TEST_CASE("cuBLASLt: its version") {
  if (cublaslt_version().empty()) {
    REQUIRE_THROWS_WITH(cublaslt(), Catch::Contains("need cuBLASLt, and none was found: libcublasLt.so.13") &&
                                        Catch::Contains("Install CUDA's cuBLAS"));
    return;
  }
  REQUIRE(std::regex_match(cublaslt_version(), std::regex("1[2-9]\\.[0-9]+\\.[0-9]+")));
}

TEST_CASE("cuBLASLt: every attribute and preference that is set has the size that the library wants") {
  if (cublaslt_version().empty()) return;
  alignas(16) std::byte memory[16] = {};  // for addresses only
  for (DType in : {DType::f32, DType::bf16})
    for (bool tf32 : {false, true}) {
      const auto tensor = [&](Shape shape) { return make_tensor(memory, in, shape); };
      const MatMul op{.c = tensor({8, 24}),
                      .a = tensor({8, 16}),
                      .b = tensor({24, 16}),
                      .bias = tensor({24}),
                      .residual = tensor({8, 24}),
                      .transpose_b = true};
      const MatmulDescriptors descriptors(problem_of(op, tf32));
      // The search comes last, and fails for want of a GPU's handle.
      REQUIRE_THROWS_WITH(descriptors.candidates(nullptr, op, 1),
                          Catch::Contains("cublasLtMatmulAlgoGetHeuristic failed"));
    }
}
