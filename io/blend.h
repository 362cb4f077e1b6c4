// Which source the next sample comes from: a fixed interleaving of several sources by weight, with O(1) access to any
// place in it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace trainer {

// The interleaving is periodic. Weights become fractions of the shortest period, up to 65,536, that holds them to 1e-9
// (0.7 and 0.3: period 10); else they are rounded to 65,536ths, and no source falls to zero. Among the first s samples,
// every source has its share w * s to within one sample, for every s: items are released and due at their Pfair
// window's ends, and the earliest due goes first (Baruah et al. 1996).
class Blend {
 public:
  struct Place {
    int source = 0;
    int64_t ordinal = 0;  // how many samples of this source came before
  };
  // Weights in any unit, each above 0. Throws Error(spec) otherwise.
  explicit Blend(std::span<const double> weights);
  Place at(int64_t sample) const;
  int64_t period() const { return int64_t(places_.size()); }
  int64_t per_period(int source) const { return per_period_[size_t(source)]; }

 private:
  std::vector<int64_t> per_period_;  // samples of each source in a period
  std::vector<Place> places_;        // one period
};

}  // namespace trainer
