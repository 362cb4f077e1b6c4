// The inner kernels of a dense product: packed panels of both factors in, a block of f32 sums out.
//
// A factor is lanes (rows of a, columns of b) along the depth k. Packed, it is panels of `width` lanes, each
// [elements][width] of four bytes: an f32, or a pair of bf16 that are neighbours along k. Lanes and halves of pairs
// that do not exist are zero.
#pragma once
#include "core/ops/matmul.h"

namespace trainer::cpu {

struct Factor {
  const std::byte* data;
  int64_t stride;       // in elements, from one stored row to the next
  DType dtype;          // f32 or bf16
  bool lanes_adjacent;  // a stored row holds lanes of one k; otherwise depths of one lane
};
// What of a factor becomes panels.
struct PanelPart {
  int64_t lane, lanes, k, depth;
};

// Writes panels of [depth][width] floats.
void pack_floats(const Factor&, const PanelPart&, int64_t width, std::byte* to);
// Writes panels of [(depth + 1) / 2][width] pairs; the factor is bf16.
void pack_pairs(const Factor&, const PanelPart&, int64_t width, std::byte* to);

// Of an a that lies where it was, in floats: from lane to lane, and from one k to the next. One of the two is 1.
struct Steps {
  int64_t lane = 0, element = 0;
};
// What c begins as: the sum of a row and of a matrix, where they are.
struct Start {
  const float *bias = nullptr, *residual = nullptr;
  int64_t residual_stride = 0;
};

// c [rows, columns] = a b, or += where `add`, over one block of depth. a and b: panels one behind the other.
struct BlockProduct {
  const std::byte *a, *b;
  float* c;
  int64_t c_stride, rows, columns, elements;  // elements: of a panel's depth
  bool add;
  Steps steps = {};  // in place, where steps.lane > 0
  Start start = {};  // instead of what c held; not with `add`
};

struct MatMulKernel {
  int64_t rows, columns;  // of a register tile: lanes of a panel of a, of b
  int64_t depth;          // k of a block: what of a panel of b stays in the nearest cache
  int64_t pair;           // k per packed element
  void (*pack)(const Factor&, const PanelPart&, int64_t width, std::byte* to);
  void (*multiply)(const BlockProduct&);
  bool in_place = false;  // `multiply` knows steps and start of a BlockProduct
};
const MatMulKernel& float_kernel();                // any level; bf16 is widened while it is packed
const MatMulKernel& pair_kernel();                 // bf16 only. REQUIRES: cpu_level() == Level::avx512_bf16
const MatMulKernel& matmul_kernel(const MatMul&);  // the one of the two that this CPU is given

// Rows of c before and after the products.
struct RowEnds {
  float* sums;                       // of one row
  std::byte* c;                      // of dtype
  const std::byte *bias, *residual;  // or nullptr; of bias_dtype and of dtype
  int64_t columns;
  DType dtype, bias_dtype;
};
// sums = bias + residual + (c where `accumulate`).
void start_row(const RowEnds&, bool accumulate);
// c = sums, rounded.
void finish_row(const RowEnds&);

}  // namespace trainer::cpu
