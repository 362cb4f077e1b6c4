#include "io/convert.h"

#include <bit>
#include <cassert>
#include <cstring>

#include "core/tensor/bf16.h"

namespace trainer {
namespace {

struct f16 {
  uint16_t bits;
};

float to_float(float x) { return x; }
// IEEE 754 binary16; the exponent is rebased by a multiplication, which also places subnormals.
float to_float(f16 x) {
  const uint32_t magnitude = x.bits & 0x7fffu, sign = uint32_t(x.bits & 0x8000u) << 16;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}
void from_float(float x, float& y) { y = x; }
void from_float(float x, bf16& y) { y = to_bf16(x); }

template <class From, class To>
void convert_as(const std::byte* from, std::byte* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    From x;
    To y;
    std::memcpy(&x, from + size_t(i) * sizeof x, sizeof x);
    from_float(to_float(x), y);
    std::memcpy(to + size_t(i) * sizeof y, &y, sizeof y);
  }
}

template <class To>
void convert_to(const std::byte* from, std::string_view from_type, std::byte* to, int64_t n) {
  if (from_type == "F32") convert_as<float, To>(from, to, n);
  else if (from_type == "BF16") convert_as<bf16, To>(from, to, n);
  else convert_as<f16, To>(from, to, n);
}

}  // namespace

const StoredType* stored_type_of(DType type) {
  check(type == DType::f32 || type == DType::bf16, Exit::checkpoint, "a checkpoint holds f32 and bf16, not {}",
        name_of(type));
  return find_stored_type(type == DType::f32 ? "F32" : "BF16");
}

bool can_convert(const StoredType* from) { return from->name == "F32" || from->name == "BF16" || from->name == "F16"; }

void convert(const std::byte* from, const StoredType* from_type, std::byte* to, DType to_type, int64_t elements) {
  assert(can_convert(from_type));
  if (stored_type_of(to_type) == from_type) std::memcpy(to, from, size_t(elements) * size_of(to_type));
  else if (to_type == DType::f32) convert_to<float>(from, from_type->name, to, elements);
  else convert_to<bf16>(from, from_type->name, to, elements);
}

}  // namespace trainer
