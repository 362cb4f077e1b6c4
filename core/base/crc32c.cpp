#include "core/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace trainer {
namespace {

using Table = std::array<std::array<uint32_t, 256>, 8>;

// Slicing by eight (Kounavis, Berry 2005): row k advances a byte past k zero bytes.
constexpr Table make_table() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    table[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      table[k][byte] = (table[k - 1][byte] >> 8) ^ table[0][table[k - 1][byte] & 0xff];
  return table;
}
constexpr Table kTable = make_table();

uint64_t load_word(const std::byte* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(uint32_t crc, std::span<const std::byte> bytes) {
  uint64_t state = uint32_t(~crc);
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) state = _mm_crc32_u64(state, load_word(p));
  auto tail = uint32_t(state);
  for (; left > 0; --left, ++p) tail = _mm_crc32_u8(tail, uint8_t(*p));
  return ~tail;
}
#endif

}  // namespace

uint32_t crc32c_portable(uint32_t crc, std::span<const std::byte> bytes) {
  uint32_t state = ~crc;
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    const uint64_t word = load_word(p) ^ state;
    state = 0;
    for (size_t k = 0; k < 8; ++k) state ^= kTable[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left > 0; --left, ++p) state = (state >> 8) ^ kTable[0][(state ^ uint32_t(*p)) & 0xff];
  return ~state;
}

uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2");
  if (has_sse42) return crc32c_sse42(crc, bytes);
#endif
  return crc32c_portable(crc, bytes);
}

}  // namespace trainer
