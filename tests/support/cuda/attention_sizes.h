// How far the tests of attention go on the CUDA device, which may be emulated, and how exact its kernels are.
#pragma once
#include "kernels/cuda/attention.h"

namespace trainer::test {

inline constexpr int64_t kLengths[] = {1, 3, 17, 65, 199};
inline constexpr int64_t kOftenWidths[] = {64, 96, 128};
inline constexpr int64_t kOtherWidths[] = {2, 6, 32, 100, 256};
inline constexpr int64_t kWindows[] = {1, 64, 130};  // around a tile
inline constexpr int64_t kDocumentWindows[] = {0, 70};
inline constexpr int kDocuments[] = {1, 3, 1000};
inline constexpr int64_t kKvHeads[] = {2};  // of 6 heads
inline constexpr int64_t kSequences = 2, kManyTiles = 200;

// Whether weights and their gradients are rounded to bf16 before they are multiplied.
inline bool rounds_weights(const Attention& op) { return cuda::attention_path(op) != cuda::AttentionPath::generic; }

}  // namespace trainer::test
