// Comparisons of what a kernel wrote with what a float64 reference wants.
#pragma once
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/buffer.h"

namespace trainer::test {

// |actual - wanted| <= absolute + relative * |wanted|, everywhere.
struct Tolerance {
  double relative, absolute;
};
// A result computed in f32 and rounded once to `dtype`, whose size is about `scale`.
inline Tolerance rounded_once(DType dtype, double scale = 1) {
  return dtype == DType::bf16 ? Tolerance{1.0 / 250, 1e-5 * scale} : Tolerance{2e-6, 2e-6 * scale};
}

inline void require_close(const Values& actual, const Values& wanted, Tolerance tolerance) {
  REQUIRE(actual.size() == wanted.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(wanted[i]);
    if (std::abs(actual[i] - wanted[i]) <= allowed) continue;
    FAIL("element " << i << " of " << actual.size() << ": wanted " << wanted[i] << ", found " << actual[i]
                    << ", allowed difference " << allowed);
  }
}
inline void require_close(const Buffer& actual, const Values& wanted, Tolerance tolerance) {
  require_close(actual.values(), wanted, tolerance);
  REQUIRE(actual.intact());
}

}  // namespace trainer::test
