// Hashes of texts and bytes: FNV-1a for names and plans, a finaliser to scramble integers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trainer {

inline constexpr uint64_t kHashSeed = 0xcbf29ce484222325;

// FNV-1a, 64 bit (http://www.isthe.com/chongo/tech/comp/fnv/).
constexpr uint64_t hash_text(std::string_view text, uint64_t h = kHashSeed) {
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

// SplitMix64's finaliser (Steele, Lea, Flood 2014): every input bit reaches every output bit.
constexpr uint64_t scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace trainer
