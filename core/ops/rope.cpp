#include "core/ops/rope.h"

#include <cmath>

namespace trainer {

void rope_frequencies(const RopeFrequencies& f, int64_t head_dim, float* inv_freq) {
  constexpr double kTwoPi = 6.283185307179586;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(f.theta, -2.0 * double(i) / double(head_dim));
    if (f.llama3) {
      const double wavelength = kTwoPi / frequency;
      const double low = f.original_max_seq_len / f.low_freq_factor, high = f.original_max_seq_len / f.high_freq_factor;
      if (wavelength > low) frequency /= f.factor;
      else if (wavelength > high) {
        const double smooth = (f.original_max_seq_len / wavelength - f.low_freq_factor) / (f.high_freq_factor - f.low_freq_factor);
        frequency = (1 - smooth) * frequency / f.factor + smooth * frequency;
      }
    }
    inv_freq[i] = float(frequency);
  }
}

}  // namespace trainer
