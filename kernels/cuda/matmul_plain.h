// The product where cuBLASLt has none for it.
#pragma once
#include <cuda_runtime_api.h>

#include "core/ops/matmul.h"

namespace trainer::cuda {

// Any dtypes, strides and alignments of the contract (core/ops/matmul.h). Tiles of 64 x 64 of c, a block of threads
// each, sum over k in order: bits depend on values alone. REQUIRES: operands are checked; m and n are not 0.
void multiply_plain(cudaStream_t, const MatMul&);

}  // namespace trainer::cuda
