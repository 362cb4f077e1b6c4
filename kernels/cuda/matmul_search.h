// Which of the algorithms that cuBLASLt suggests is fastest here.
#pragma once
#include "kernels/cuda/matmul_problem.h"

namespace trainer::cuda {

// Runs each a few times in turn, and takes the one with the shortest run. What `c` held is lost. The host waits for the
// stream. REQUIRES: cuBLASLt suggests an algorithm; the workspace has matmul_workspace(m, n) bytes, 256-byte aligned.
MatmulAlgorithm fastest(cublasLtHandle_t, const MatmulDescriptors&, const MatMul&, void* workspace, cudaStream_t);

}  // namespace trainer::cuda
