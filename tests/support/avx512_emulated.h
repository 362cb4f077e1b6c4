// AVX512-BF16 on any CPU: SIMDe's emulation under the native names, and the few instructions that SIMDe 0.7 lacks.
// Include it before a kernel header, in a translation unit built with -Wno-psabi and without AVX-512 flags.
#pragma once
#define TRAINER_AVX512_EMULATED
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <cstdint>
#include <cstring>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#include <simde/x86/avx512.h>
#pragma GCC diagnostic pop

#include "core/tensor/bf16.h"

using __mmask8 = simde__mmask8;
using __mmask16 = simde__mmask16;
using __mmask32 = simde__mmask32;

namespace trainer::emulated {

using M512 = simde__m512;
using M512i = simde__m512i;
using M256i = simde__m256i;

template <class To, class From>
To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
template <class T, size_t bytes>
struct Lanes {
  static constexpr size_t kCount = bytes / sizeof(T);
  T at[kCount];
};
template <class T, class V>
auto lanes_of(const V& x) {
  return same_bits<Lanes<T, sizeof(V)>>(x);
}
// Lanes of `mask` from memory, the others from `otherwise`; memory behind masked lanes is not touched.
template <class T, class V>
V load_lanes(V otherwise, uint32_t mask, const void* from) {
  auto lanes = lanes_of<T>(otherwise);
  for (size_t i = 0; i < lanes.kCount; ++i)
    if (mask >> i & 1) std::memcpy(&lanes.at[i], static_cast<const T*>(from) + i, sizeof(T));
  return same_bits<V>(lanes);
}
template <class T, class V>
void store_lanes(void* to, uint32_t mask, V from) {
  const auto lanes = lanes_of<T>(from);
  for (size_t i = 0; i < lanes.kCount; ++i)
    if (mask >> i & 1) std::memcpy(static_cast<T*>(to) + i, &lanes.at[i], sizeof(T));
}
inline M512i widen_u16(M256i x) {
  const auto from = lanes_of<uint16_t>(x);
  Lanes<uint32_t, 64> to;
  for (size_t i = 0; i < 16; ++i) to.at[i] = from.at[i];
  return same_bits<M512i>(to);
}
inline M256i narrow_i32(M512i x) {
  const auto from = lanes_of<uint32_t>(x);
  Lanes<uint16_t, 32> to;
  for (size_t i = 0; i < 16; ++i) to.at[i] = uint16_t(from.at[i]);
  return same_bits<M256i>(to);
}
inline simde__m256bh round_to_bf16(M512 x) {
  const auto from = lanes_of<float>(x);
  Lanes<uint16_t, 32> to;
  for (size_t i = 0; i < 16; ++i) to.at[i] = to_bf16(from.at[i]).bits;
  return same_bits<simde__m256bh>(to);
}
inline simde__m512bh round_two_to_bf16(M512 upper, M512 lower) {
  const simde__m256bh halves[2] = {round_to_bf16(lower), round_to_bf16(upper)};
  return same_bits<simde__m512bh>(halves);
}
inline float sum_of_lanes(M512 x) {  // in the compiler's order: halves, quarters, ...
  auto lanes = lanes_of<float>(x);
  for (size_t half = 8; half; half /= 2)
    for (size_t i = 0; i < half; ++i) lanes.at[i] += lanes.at[i + half];
  return lanes.at[0];
}
inline float max_of_lanes(M512 x) {
  const auto lanes = lanes_of<float>(x);
  float largest = lanes.at[0];
  for (float lane : lanes.at) largest = lane > largest ? lane : largest;
  return largest;
}

}  // namespace trainer::emulated

// Macros, because GCC's headers declare the same names.
#define _mm512_cvtepu16_epi32(x) trainer::emulated::widen_u16(x)
#define _mm512_cvtepi32_epi16(x) trainer::emulated::narrow_i32(x)
#define _mm512_cvtneps_pbh(x) trainer::emulated::round_to_bf16(x)
#define _mm512_cvtne2ps_pbh(upper, lower) trainer::emulated::round_two_to_bf16(upper, lower)
#define _mm512_reduce_add_ps(x) trainer::emulated::sum_of_lanes(x)
#define _mm512_reduce_max_ps(x) trainer::emulated::max_of_lanes(x)
#define _mm512_mask_loadu_ps(otherwise, mask, from) trainer::emulated::load_lanes<float>(otherwise, mask, from)
#define _mm512_maskz_loadu_ps(mask, from) trainer::emulated::load_lanes<float>(_mm512_setzero_ps(), mask, from)
#define _mm512_mask_storeu_ps(to, mask, x) trainer::emulated::store_lanes<float>(to, mask, x)
#define _mm512_maskz_loadu_epi16(mask, from) trainer::emulated::load_lanes<uint16_t>(_mm512_setzero_si512(), mask, from)
#define _mm512_mask_storeu_epi16(to, mask, x) trainer::emulated::store_lanes<uint16_t>(to, mask, x)
#define _mm512_maskz_loadu_epi32(mask, from) trainer::emulated::load_lanes<uint32_t>(_mm512_setzero_si512(), mask, from)
#define _mm512_mask_storeu_epi32(to, mask, x) trainer::emulated::store_lanes<uint32_t>(to, mask, x)
#define _mm256_maskz_loadu_epi16(mask, from) trainer::emulated::load_lanes<uint16_t>(_mm256_setzero_si256(), mask, from)
#define _mm256_mask_storeu_epi16(to, mask, x) trainer::emulated::store_lanes<uint16_t>(to, mask, x)
