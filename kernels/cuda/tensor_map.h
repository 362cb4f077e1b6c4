// Maps of tensors for bulk copies of tiles (TMA), made by the driver; they go to kernels as __grid_constant__
// parameters, so a captured launch keeps its own.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_job.h"

namespace trainer::cuda {

// A CUtensorMap.
struct alignas(128) TensorMap {
  std::byte opaque[128];
};

inline constexpr int kBoxColumns = 64;  // 128 bytes of bf16: the swizzle's span

// Of bf16 rows in `heads` heads: tiles of kBoxColumns elements of `rows` rows of a head of a sequence, at (column,
// head, row, sequence), with the 128-byte swizzle. What lies behind the width or the length comes as zeros. REQUIRES:
// rows begin at multiples of 16 bytes; rows <= 256. Throws Error(device) where the driver has no tensor maps or
// refuses.
TensorMap map_of_heads(const HeadRows&, int heads, const AttentionJob&, int rows);

}  // namespace trainer::cuda
