// The functions of cuBLASLt that are used here, loaded when the first product needs them: a binary that was built with
// CUDA also runs on CPUs of machines that have none. https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api
#pragma once
#include <cublasLt.h>

#include <string>

namespace trainer::cuda {

#define TRAINER_CUBLASLT_FUNCTIONS(X)     \
  X(cublasLtCreate)                       \
  X(cublasLtDestroy)                      \
  X(cublasLtGetVersion)                   \
  X(cublasLtGetStatusString)              \
  X(cublasLtMatmul)                       \
  X(cublasLtMatmulAlgoCheck)              \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)

struct CublasLt {
#define TRAINER_CUBLASLT_MEMBER(name) decltype(&::name) name = nullptr;
  TRAINER_CUBLASLT_FUNCTIONS(TRAINER_CUBLASLT_MEMBER)
#undef TRAINER_CUBLASLT_MEMBER
};

// Loads the library once in a process. Throws Error(device) where the machine has none; tests/fakecuda has one for the
// emulated device.
const CublasLt& cublaslt();

// As "13.1.0"; empty where the machine has none.
std::string cublaslt_version();

}  // namespace trainer::cuda
