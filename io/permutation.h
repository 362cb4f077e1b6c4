// A keyed permutation of [0, n) that is computed, not stored: a balanced Feistel network over the next even power of
// two, walked until it lands inside (Black, Rogaway 2002, "Ciphers with arbitrary finite domains").
#pragma once
#include <bit>
#include <cstdint>

#include "core/base/hash.h"

namespace trainer {

class Permutation {
 public:
  // REQUIRES: n > 0
  Permutation(uint64_t n, uint64_t key) : n_(n), key_(key), half_bits_((int(std::bit_width(n - 1)) + 1) / 2) {}

  // Where `i` goes; fewer than four network passes on average. REQUIRES: i < n
  uint64_t operator()(uint64_t i) const {
    do i = encrypt(i);
    while (i >= n_);
    return i;
  }

 private:
  static constexpr uint64_t kRounds = 6;
  uint64_t encrypt(uint64_t x) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (scramble(scramble(key_ + round) ^ right) & mask);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }
  uint64_t n_, key_;
  int half_bits_;
};

}  // namespace trainer
