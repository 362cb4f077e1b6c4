#include "io/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"

namespace trainer {
namespace {

constexpr int64_t kLongestPeriod = 65536;

// Parts of `period` that the shares come to, if all are whole but for rounding errors.
bool divides(std::span<const double> shares, int64_t period) {
  return std::all_of(shares.begin(), shares.end(), [&](double share) {
    const double part = share * double(period);
    return std::round(part) >= 1 && std::abs(part - std::round(part)) < 1e-9 * double(period);
  });
}

// Whole parts that sum to `period`, at least 1 each, as near to the shares as that allows.
std::vector<int64_t> round_shares(std::span<const double> shares, int64_t period) {
  std::vector<int64_t> parts;
  for (const double share : shares) parts.push_back(std::max<int64_t>(1, std::llround(share * double(period))));
  const auto lack = [&](size_t k, int64_t step) {
    return parts[k] + step < 1 ? -HUGE_VAL : double(step) * (shares[k] * double(period) - double(parts[k]));
  };
  for (int64_t sum; (sum = std::accumulate(parts.begin(), parts.end(), int64_t{0})) != period;) {
    const int64_t step = sum < period ? 1 : -1;
    size_t neediest = 0;
    for (size_t k = 1; k < parts.size(); ++k)
      if (lack(k, step) > lack(neediest, step)) neediest = k;
    parts[neediest] += step;
  }
  return parts;
}

}  // namespace

Blend::Blend(std::span<const double> weights) {
  check(!weights.empty() && int64_t(weights.size()) <= kLongestPeriod, Exit::spec, "{} data sources, wanted 1 to {}",
        weights.size(), kLongestPeriod);
  for (const double w : weights)
    check(std::isfinite(w) && w > 0, Exit::spec, "a data source's weight is {}, wanted a number above 0", w);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> shares;
  for (const double w : weights) shares.push_back(w / total);
  int64_t period = int64_t(weights.size());
  while (period < kLongestPeriod && !divides(shares, period)) ++period;
  per_period_ = round_shares(shares, period);

  std::vector<int64_t> taken(weights.size(), 0);
  for (int64_t slot = 0; slot < period; ++slot) {
    size_t best = weights.size();
    int64_t best_due = 0;
    for (size_t k = 0; k < weights.size(); ++k) {
      const int64_t released = taken[k] * period / per_period_[k];
      const int64_t due = ((taken[k] + 1) * period + per_period_[k] - 1) / per_period_[k];
      if (released > slot || (best < weights.size() && due >= best_due)) continue;
      best = k;
      best_due = due;
    }
    places_.push_back({int(best), taken[best]++});
  }
}

Blend::Place Blend::at(int64_t sample) const {
  const Place place = places_[size_t(sample % period())];
  return {place.source, place.ordinal + sample / period() * per_period(place.source)};
}

}  // namespace trainer
