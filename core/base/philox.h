// Philox4x32-10 (Salmon et al., SC'11): random numbers as a pure function of (key, counter), so initial values and dropout
// depend on names and global indices only, never on the layout or on what was drawn before.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

namespace trainer {

using Philox4 = std::array<uint32_t, 4>;

constexpr Philox4 philox(uint64_t key, uint64_t counter, uint64_t stream = 0) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  Philox4 c{uint32_t(counter), uint32_t(counter >> 32), uint32_t(stream), uint32_t(stream >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53) * c[0], p1 = uint64_t(0xCD9E8D57) * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// Uniform in (0, 1), never 0.
constexpr double uniform_open(uint32_t bits) { return (double(bits) + 0.5) * (1.0 / 4294967296.0); }

// Standard normal by Box-Muller from the first two words of a draw.
inline double normal(const Philox4& bits) {
  return std::sqrt(-2 * std::log(uniform_open(bits[0]))) * std::cos(6.283185307179586 * uniform_open(bits[1]));
}

}  // namespace trainer
