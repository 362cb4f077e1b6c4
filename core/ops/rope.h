// Rotary position embedding (Su et al. 2021) in Hugging Face's layout: element i of a head pairs with element i + D/2.
#pragma once
#include "core/ops/kernel.h"

namespace trainer {

// Frequencies of the rotation: theta^(-2i/D), for Llama 3.1 rescaled by wavelength (Llama 3 reference, `apply_scaling`):
// below original/high_freq unchanged, above original/low_freq divided by factor, between them interpolated.
struct RopeFrequencies {
  double theta = 10000;
  bool llama3 = false;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4, original_max_seq_len = 8192;
};
// inv_freq[i] as f32, i < D/2: computed in double, rounded once.
void rope_frequencies(const RopeFrequencies&, int64_t head_dim, float* inv_freq);

// Rotates x [N, G, D] in place: row n by positions[n], or by n % seq_len where positions is empty.
// The angle is float(position) * inv_freq, in f32. `inverse` rotates back: the backward pass.
struct Rope {
  static constexpr const char* kName = "rope";
  Tensor x;                 // [N, G, D], rows may be strided
  Tensor positions;         // i32 [N] or empty; values in [0, seq_len)
  int64_t seq_len = 0;
  RopeFrequencies frequencies;
  bool inverse = false;
  Cost cost() const { return {3.0 * double(x.elements()), 2.0 * double(x.bytes())}; }
};

}  // namespace trainer
