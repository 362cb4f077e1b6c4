// A case of attention, forward and backward, against float64.
#pragma once
#include <catch2/catch.hpp>

#include "tests/attention/reference.h"
#include "tests/support/compare.h"

namespace trainer::test {

// Of kernels that round weights and their gradients to bf16: each is off by up to 2^-9 of itself, which sums of terms
// that cancel keep, so that results miss more than by their own rounding.
inline constexpr Tolerance kRoundedWeights{2e-2, 1e-2};

inline double largest_or_1(const Values& v) {
  double most = 1;
  for (double x : v) most = std::max(most, std::abs(x));
  return most;
}

// `run` runs an operation; `tolerance_of` says what its results may miss by: `absolute` is for those of about 1, and
// grows with them.
template <class ToleranceOf, class Run>
void check_attention(const AttentionCase& c, ToleranceOf tolerance_of, Run run) {
  CAPTURE(c.batch, c.length, c.heads, c.kv_heads, c.width, c.window, c.documents, c.gap, name_of(c.dtype));
  const AttentionValues x = reference_values(c);
  AttentionBuffers b(c, x);
  const Tolerance tolerance = tolerance_of(b.forward());
  const auto allowed = [&](const Values& wanted) {
    return Tolerance{tolerance.relative, tolerance.absolute * largest_or_1(wanted)};
  };
  run(b.forward());
  require_close(b.out, x.out, allowed(x.out));
  require_close(b.lse, x.lse, {2e-6, 1e-5});

  b.out.set(x.out);
  b.lse.set(x.lse);
  run(b.backward());
  REQUIRE(b.d_qkv.intact());
  require_close(b.gradient(0), x.d_q, allowed(x.d_q));
  require_close(b.gradient(1), x.d_k, allowed(x.d_k));
  require_close(b.gradient(2), x.d_v, allowed(x.d_v));
}

}  // namespace trainer::test
