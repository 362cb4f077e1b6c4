#include "io/state_hash.h"

#include <cstring>

#include "core/base/hash.h"

namespace trainer {
namespace {

// Two multiplications, which is what a vector unit without 64-bit ones can do at the speed of memory.
uint64_t mix(uint64_t place, uint64_t bits) {
  uint64_t x = (place ^ bits) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

template <class Bits>
[[gnu::always_inline]] inline uint64_t mixed_sum(uint64_t key, int64_t first, const std::byte* values,
                                                 int64_t elements) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < elements; ++i) {
    Bits bits;
    std::memcpy(&bits, values + size_t(i) * sizeof bits, sizeof bits);
    // Neighbours' indices and values must not cancel: the index stands above the bits of a value.
    sum += mix(key + (uint64_t(first + i) << 32 | uint64_t(first + i) >> 32), bits);
  }
  return sum;
}

#if defined(__x86_64__)
// The same code for four elements at a time: 5.6 GB/s of f32 on a Zen 3 core, 3.3 without.
template <class Bits>
[[gnu::target("avx2")]] uint64_t mixed_sum_avx2(uint64_t key, int64_t first, const std::byte* values,
                                                int64_t elements) {
  return mixed_sum<Bits>(key, first, values, elements);
}
#endif

template <class Bits>
uint64_t sum_of(uint64_t key, int64_t first, const std::byte* values, int64_t elements) {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return mixed_sum_avx2<Bits>(key, first, values, elements);
#endif
  return mixed_sum<Bits>(key, first, values, elements);
}

uint64_t key_of(const std::string& tensor, DType type) { return scramble(hash_text(tensor, hash_text(name_of(type)))); }

uint64_t sum_of(uint64_t key, DType type, int64_t first, const std::byte* values, int64_t elements) {
  return size_of(type) == 4 ? sum_of<uint32_t>(key, first, values, elements)
                            : sum_of<uint16_t>(key, first, values, elements);
}

}  // namespace

uint64_t hash_elements(const std::string& tensor, DType type, int64_t first, const std::byte* values,
                       int64_t elements) {
  return sum_of(key_of(tensor, type), type, first, values, elements);
}

TensorHashes tensor_hashes(std::span<const NamedBox> boxes) {
  TensorHashes hashes;
  for (const NamedBox& b : boxes) {
    const int rank = b.logical.rank;
    const Rectangle r = rectangle_of(b.box, rank);
    const uint64_t key = key_of(b.tensor, b.values.dtype);
    // Whole rows of both sides are one run.
    const bool one = b.values.dense() && r.columns() == b.logical[rank - 1];
    uint64_t& sum = hashes[b.tensor];
    for (int64_t row = 0; row < (one ? 1 : r.rows()); ++row) {
      const int64_t first = (r.row_begin + row) * b.logical[rank - 1] + r.column_begin;
      const std::byte* values = row_part(b.values, row, row + 1).data;
      sum += sum_of(key, b.values.dtype, first, values, one ? r.elements() : r.columns());
    }
  }
  return hashes;
}

uint64_t combined(const TensorHashes& hashes) {
  uint64_t sum = 0;
  for (const auto& [tensor, hash] : hashes) sum += hash;
  return sum;
}

}  // namespace trainer
