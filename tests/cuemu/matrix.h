// The tensor core's instructions of sm_80, and what goes with them, by the fragment layouts of the PTX ISA ("Matrix
// fragments for mma.m16n8k16", "ldmatrix"). The sums are f32, k in order; the hardware's order and rounding differ.
#pragma once
#include <cstdint>

#include "tests/cuemu/fail.h"

namespace cuemu {

// d[4] = a[4 x 2 bf16] b[2 x 2 bf16] + c[4], the fragments of the calling lane.
void mma_m16n8k16_bf16(float* d, const uint32_t* a, const uint32_t* b, const float* c, const Location&);

// `matrices` (1, 2, 4) matrices of 8 x 8 b16; lane i gives the address of row i % 8 of matrix i / 8.
void ldmatrix(uint32_t* r, int matrices, const void* row, bool transpose, const Location&);

// Of sm_90: the way back, for four matrices.
void stmatrix_x4(void* row, const uint32_t* r, const Location&);

}  // namespace cuemu
