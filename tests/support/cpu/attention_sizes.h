// How far the tests of attention go on the CPU, and how exact its kernels are.
#pragma once
#include "core/ops/attention.h"
#include "kernels/cpu/workers.h"

namespace trainer::test {

inline constexpr int64_t kLengths[] = {1, 2, 3, 17, 63, 65, 389};
inline constexpr int64_t kOftenWidths[] = {32, 64, 128};
inline constexpr int64_t kOtherWidths[] = {2, 6, 18, 40, 80, 96, 100, 256};
inline constexpr int64_t kWindows[] = {1, 7, 96, 97, 150, 1000};  // around a tile
inline constexpr int64_t kDocumentWindows[] = {0, 19, 150};
inline constexpr int kDocuments[] = {1, 2, 5, 1000};
inline constexpr int64_t kKvHeads[] = {1, 2, 6};  // of 6 heads
inline constexpr int64_t kSequences = 3, kManyTiles = 389;

// Whether weights and their gradients are rounded to bf16 before they are multiplied.
inline bool rounds_weights(const Attention& op) {
  const int64_t width = op.q.shape[2];
  return op.q.dtype == DType::bf16 && (width == 64 || width == 128) && cpu::cpu_level() == cpu::Level::avx512_bf16;
}

}  // namespace trainer::test
