// bfloat16 as a storage type: the upper half of a float. Conversions round to nearest even, and keep NaN a NaN.
#pragma once
#include <bit>
#include <cstdint>

namespace trainer {

struct bf16 {
  uint16_t bits;
};

inline float to_float(bf16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
inline bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffff) > 0x7f800000) return {uint16_t(u >> 16 | 0x40)};
  return {uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}

}  // namespace trainer
