#include <limits>

#include "tests/rows/cases.h"

using namespace trainer;
using namespace trainer::test;

namespace {

template <class T>
Tensor record(T& value) {
  return make_tensor(reinterpret_cast<std::byte*>(&value), DType::u8, {int64_t(sizeof value)});
}
Control agreed(const Outcome& world, float max_norm) {
  Outcome outcome = world;
  Control control{.max_norm = max_norm, .factor = -1, .skip = -1};
  run_op(Agree{record(control), record(outcome)});
  return control;
}

constexpr float kNoClip = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("begin writes the control block and clears the outcome") {
  Control control{};
  Outcome outcome{1, 2, 3, 4, 5, 6};
  run_op(
      Begin{{.step = 9, .seed = 8, .lr = 0.5f, .bias1 = 0.25f, .bias2 = 0.125f, .max_norm = 2, .factor = 3, .skip = 1},
            record(control),
            record(outcome)});
  REQUIRE(control.step == 9);
  REQUIRE(control.seed == 8);
  REQUIRE(control.lr == 0.5f);
  REQUIRE(control.max_norm == 2);
  for (const double x :
       {outcome.loss_sum, outcome.tokens, outcome.norm2, outcome.nonfinite, outcome.stop_requested, outcome.store_busy})
    REQUIRE(x == 0);
}

TEST_CASE("agree divides by the tokens and clips the norm of the mean gradient") {
  const Outcome outcome{.loss_sum = 10, .tokens = 4, .norm2 = 64};  // the mean's norm is 8 / 4 = 2
  REQUIRE(agreed(outcome, kNoClip).factor == 0.25f);
  REQUIRE(agreed(outcome, 3).factor == 0.25f);
  REQUIRE(agreed(outcome, 1).factor == 0.125f);
  REQUIRE(agreed(outcome, 1).skip == 0);
  REQUIRE(agreed({.loss_sum = 10, .tokens = 4, .norm2 = 0}, 1).factor == 0.25f);
}

TEST_CASE("agree skips a step that is not finite or has no tokens") {
  REQUIRE(agreed({.loss_sum = 1, .tokens = 1, .norm2 = NAN, .nonfinite = 1}, 1).skip == 1);
  REQUIRE(agreed({.loss_sum = NAN, .tokens = 1, .norm2 = 1}, 1).skip == 1);
  REQUIRE(agreed({.loss_sum = INFINITY, .tokens = 1, .norm2 = 1}, 1).skip == 1);
  const Control none = agreed({}, 1);
  REQUIRE(none.skip == 1);
  REQUIRE(none.factor == 0);
}
