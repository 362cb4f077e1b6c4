// The arithmetic: sums in f32 over each part of k in order, then over the parts, then the epilogue, rounded once.
#include <unistd.h>

#include <bit>
#include <cstring>
#include <vector>

#include "core/tensor/bf16.h"
#include "tests/fakecuda/cublaslt.h"
#include "tests/fakecuda/fake_cuda.h"

namespace fake {
namespace {

constexpr useconds_t kSlow = 100000;

float load(const void* data, size_t i, cudaDataType_t type) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  return trainer::to_float(static_cast<const trainer::bf16*>(data)[i]);
}
void store(void* data, size_t i, cudaDataType_t type, float value) {
  if (type == CUDA_R_32F) static_cast<float*>(data)[i] = value;
  else static_cast<trainer::bf16*>(data)[i] = trainer::to_bf16(value);
}
float rounded(float x, cudaDataType_t type) { return type == CUDA_R_32F ? x : trainer::to_float(trainer::to_bf16(x)); }
// To 10 bits of mantissa, ties away from zero (PTX, cvt.rna.tf32.f32).
float as_tf32(float x) { return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000) & ~0x1fffu); }

// Columns only: what lies between them belongs to others.
void announce(const void* data, const CublasLtLayout& l, bool write) {
  for (uint64_t j = 0; j < l.columns; ++j) {
    const char* column = static_cast<const char*>(data) + j * size_t(l.ld) * l.element();
    if (write) acc_write(const_cast<char*>(column), l.rows * l.element());
    else acc_read(column, l.rows * l.element());
  }
}

// op(x) in f32, column after column.
std::vector<float> widened(const void* data, const CublasLtLayout& l, bool transpose, bool tf32) {
  std::vector<float> x(l.rows * l.columns);
  for (uint64_t j = 0; j < l.columns; ++j)
    for (uint64_t i = 0; i < l.rows; ++i) {
      const float value = load(data, j * size_t(l.ld) + i, l.type);
      x[transpose ? i * l.columns + j : j * l.rows + i] = tf32 ? as_tf32(value) : value;
    }
  return x;
}

void add_products(float* sums, const CublasLtProduct& p, const std::vector<float>& a, const std::vector<float>& b,
                  uint64_t first, uint64_t end) {
  const uint64_t m = p.m(), n = p.n(), k = p.k();
  std::fill(sums, sums + m * n, 0.0f);
  for (uint64_t j = 0; j < n; ++j)
    for (uint64_t l = first; l < end; ++l) {
      const float factor = b[j * k + l];
      for (uint64_t i = 0; i < m; ++i) sums[j * m + i] += a[l * m + i] * factor;
    }
}

}  // namespace

void multiply(const CublasLtProduct& p) {
  announce(p.a_data, p.a, false);
  announce(p.b_data, p.b, false);
  if (p.beta != 0) announce(p.c_data, p.c, false);
  if (p.operation.epilogue == CUBLASLT_EPILOGUE_BIAS) acc_read(p.operation.bias, p.m() * p.d.element());
  announce(p.d_data, p.d, true);

  const bool tf32 = p.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const auto a = widened(p.a_data, p.a, p.operation.transpose_a != CUBLAS_OP_N, tf32);
  const auto b = widened(p.b_data, p.b, p.operation.transpose_b != CUBLAS_OP_N, tf32);
  const uint64_t elements = p.m() * p.n(), parts = uint64_t(p.splits);
  std::vector<float> whole;
  float* sums = static_cast<float*>(p.workspace);
  if (parts == 1) {
    whole.resize(elements);
    sums = whole.data();
  } else {
    acc_write(sums, elements * parts * sizeof(float));
  }
  for (uint64_t s = 0; s < parts; ++s)
    add_products(sums + s * elements, p, a, b, p.k() * s / parts, p.k() * (s + 1) / parts);

  for (uint64_t j = 0; j < p.n(); ++j)
    for (uint64_t i = 0; i < p.m(); ++i) {
      float sum = 0;
      for (uint64_t s = 0; s < parts; ++s) {
        const float part = sums[s * elements + j * p.m() + i];
        sum += p.rounds_part_sums ? rounded(part, p.d.type) : part;
      }
      float value = p.alpha * sum;
      if (p.beta != 0) value += p.beta * load(p.c_data, j * size_t(p.c.ld) + i, p.c.type);
      if (p.operation.epilogue == CUBLASLT_EPILOGUE_BIAS) value += load(p.operation.bias, i, p.d.type);
      store(p.d_data, j * size_t(p.d.ld) + i, p.d.type, value);
    }
  if (p.algorithm == cublaslt_settings().slow) usleep(kSlow);
  counters.gemms++;
}

}  // namespace fake
