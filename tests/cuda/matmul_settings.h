// What tests of products change for the whole process, and put back.
#pragma once
#include "kernels/cuda/matmul.h"
#include "tests/fakecuda/cublaslt.h"

namespace trainer::test {

struct MatmulSettings {
  MatmulSettings() { reset(); }
  ~MatmulSettings() { reset(); }
  MatmulSettings(const MatmulSettings&) = delete;
  MatmulSettings& operator=(const MatmulSettings&) = delete;
  // Also forgets every algorithm.
  static void reset() {
    fake::cublaslt_settings() = {};
    cuda::set_matmul_policy({});
    cuda::set_algorithms("", "nothing");
  }
};

}  // namespace trainer::test
