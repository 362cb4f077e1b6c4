// xorshift: cheap enough to ask at every switch of a fiber.
#pragma once
#include <cstdint>

namespace cuemu {

class Random {
 public:
  // Streams of one seed differ by `stream`; a state of 0 would stay 0.
  void seed(uint64_t seed, uint64_t stream = 0) {
    state_ = ((seed + 1) * 0x9E3779B97F4A7C15ull) ^ ((stream + 1) * 0xD1B54A32D192ED03ull);
    if (!state_) state_ = 1;
    for (int i = 0; i < 4; ++i) next();  // neighbouring seeds part
  }
  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return uint32_t(state_ >> 16);
  }
  uint32_t below(size_t n) { return uint32_t(next() % n); }

 private:
  uint64_t state_ = 1;
};

}  // namespace cuemu
