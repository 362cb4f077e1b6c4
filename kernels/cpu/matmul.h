// Dense products on a pool, for kernels that are made of several.
#pragma once
#include "core/ops/matmul.h"
#include "kernels/cpu/pool.h"

namespace trainer::cpu {

struct MatMulKernel;

// The product on `pool`; scratch has at least scratch_bytes(op) for as many workers, 128-byte aligned.
void multiply(Pool& pool, const MatMul& op, std::span<std::byte> scratch);
// The same with a given inner kernel (tests run those that this CPU would not choose).
void multiply(Pool& pool, const MatMul& op, std::span<std::byte> scratch, const MatMulKernel& kernel);
size_t scratch_bytes(const MatMul& op, const MatMulKernel& kernel, int workers);

}  // namespace trainer::cpu
