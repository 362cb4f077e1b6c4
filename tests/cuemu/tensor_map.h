// What a CUtensorMap holds on the emulated device, in its opaque words.
#pragma once
#include <cstdint>

namespace cuemu {

struct TensorMap {
  static constexpr uint32_t kMark = 0x7d39a11c;
  static constexpr unsigned kMaxRank = 4;
  uint32_t mark;
  uint16_t rank, element_bytes;
  const char* data;
  uint32_t size[kMaxRank], box[kMaxRank];  // in elements, the innermost first
  uint64_t stride[kMaxRank];               // in bytes; of the innermost, an element
  uint32_t swizzle_mask;                   // of the address bits 4..6, from the bits 7..9
};
static_assert(sizeof(TensorMap) <= 128);

// Where a swizzled tile keeps what would lie at this address.
inline uintptr_t swizzle(uintptr_t address, uint32_t mask) { return address ^ (address >> 3 & mask); }
inline constexpr uint32_t kSwizzle128 = 0x70, kSwizzle64 = 0x30, kSwizzle32 = 0x10;

}  // namespace cuemu
