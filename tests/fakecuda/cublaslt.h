// The shim of cuBLASLt: matrices as the library describes them, checks of its rules, algorithms that round differently.
//
// Built is what the backend calls: bf16 and f32, column order, no batches, the epilogues DEFAULT and BIAS. What is not
// built ends the process and says so, as does a call that the library would answer with wrong numbers or a fault.
#pragma once
#include <cublasLt.h>

#include <cstdint>

namespace fake {

struct CublasLtSettings {
  int suggested = 3;  // algorithms at most; 0: none for any problem
  int slow = -1;      // the algorithm (0, 1, 2) that takes 100 ms more than its products
};
CublasLtSettings& cublaslt_settings();

struct CublasLtOperation {
  uint64_t magic;
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};

struct CublasLtLayout {
  uint64_t magic;
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t ld;
  size_t element() const { return type == CUDA_R_32F ? 4 : 2; }
  size_t span() const { return (size_t(columns - 1) * size_t(ld) + rows) * element(); }
};

// One product, with everything copied from the descriptors: they may change before it runs.
struct CublasLtProduct {
  CublasLtOperation operation;
  CublasLtLayout a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void *d_data, *workspace;
  float alpha, beta;
  int algorithm, splits;  // parts of k that are summed on their own, in the workspace
  bool rounds_part_sums;  // to d's type
  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.columns; }
  uint64_t k() const { return operation.transpose_a == CUBLAS_OP_N ? a.columns : a.rows; }
};
void multiply(const CublasLtProduct&);

}  // namespace fake
