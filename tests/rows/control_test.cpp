#include <limits>

#include "tests/rows/cases.h"
#include "tests/support/record.h"

using namespace trainer;
using namespace trainer::test;

namespace {

Control agreed(const Outcome& world, float max_norm) {
  Record<Outcome> outcome(world);
  Record<Control> control({.max_norm = max_norm, .factor = -1, .skip = -1});
  run_op(Agree{control, outcome});
  return *control;
}

constexpr float kNoClip = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("begin writes the control block and clears the outcome") {
  const Record<Control> value(
      {.step = 9, .seed = 8, .lr = 0.5f, .bias1 = 0.25f, .bias2 = 0.125f, .max_norm = 2, .factor = 3, .skip = 1});
  Record<Control> on_device;
  Record<Outcome> cleared({1, 2, 3, 4, 5, 6});
  run_op(Begin{&*value, on_device, cleared});
  const Control& control = *on_device;
  const Outcome& outcome = *cleared;
  REQUIRE(control.step == 9);
  REQUIRE(control.seed == 8);
  REQUIRE(control.lr == 0.5f);
  REQUIRE(control.max_norm == 2);
  for (const double x :
       {outcome.loss_sum, outcome.tokens, outcome.norm2, outcome.nonfinite, outcome.stop_requested, outcome.store_busy})
    REQUIRE(x == 0);
}

TEST_CASE("a stamp is the time when the lane gets there") {
  Record<int64_t> first(0), second(0);
  run_op(Stamp{&*first});
  run_op(Stamp{&*second});
  REQUIRE(*first > 0);
  REQUIRE(*second >= *first);
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

TEST_CASE("agree ends what was refused before") {
  Record<Outcome> outcome({.loss_sum = 1, .tokens = 1});
  Record<Control> control({.max_norm = 1});
  Record<double> verdict(1);
  run_op(Agree{control, outcome, verdict});
  REQUIRE(*verdict == 0);
}

TEST_CASE("trust makes of the tokens what agree makes of a gradient that is not clipped") {
  for (const double tokens : {1.0, 3.0, 4.0, 1021.0, 4194301.0})
    for (const double verdict : {0.0, 1.0}) {
      Record<Outcome> ballot({.tokens = tokens});
      Record<Control> control({.max_norm = 1, .factor = -1, .skip = -1});
      Record<double> before(verdict);
      run_op(Trust{control, ballot, before});
      REQUIRE(control->factor == agreed({.loss_sum = 1, .tokens = tokens}, kNoClip).factor);
      REQUIRE(control->skip == int(verdict));
    }
  Record<Outcome> nothing;
  Record<Control> control({.factor = -1, .skip = -1});
  Record<double> fine(0);
  run_op(Trust{control, nothing, fine});
  REQUIRE(control->skip == 1);
  REQUIRE(control->factor == 0);
}

TEST_CASE("judge refuses what agree would have clipped or left out, and goes on refusing") {
  const auto refused = [](const Outcome& world, float max_norm, double before = 0) {
    Record<Outcome> ballot(world);
    Record<double> verdict(before);
    run_op(Judge{verdict, ballot, max_norm});
    REQUIRE(ballot->refused == *verdict);
    return ballot->refused;
  };
  const Outcome outcome{.loss_sum = 10, .tokens = 4, .norm2 = 64};  // the mean's norm is 2
  REQUIRE(refused(outcome, kNoClip) == 0);
  REQUIRE(refused(outcome, 2) == 0);
  REQUIRE(refused(outcome, 1.999f) == 1);
  REQUIRE(refused(outcome, 2, 1) == 1);
  REQUIRE(refused({.loss_sum = 1, .tokens = 1, .norm2 = NAN, .nonfinite = 1}, kNoClip) == 1);
  REQUIRE(refused({.loss_sum = NAN, .tokens = 1}, kNoClip) == 1);
  REQUIRE(refused({}, 1) == 0);  // no tokens: nothing was updated
}

TEST_CASE("a note is read when the lane gets there, and adds to the outcome") {
  Record<Outcome> outcome({.loss_sum = 1, .stop_requested = 2});
  Record<NotePage> page;
  const int64_t source = 5;
  const auto read = [](const void* from, int64_t step, Outcome& o) {
    o.stop_requested += double(*static_cast<const int64_t*>(from) + step);
    o.data_hash[3] += 7;
  };
  page->call = {read, &source, 30};
  run_op(Note{&*page, outcome});
  const Outcome& noted = *outcome;
  REQUIRE(noted.stop_requested == 37);
  REQUIRE(noted.data_hash[3] == 7);
  REQUIRE(noted.loss_sum == 1);
}

TEST_CASE("tell puts the outcome into the page") {
  Record<Outcome> outcome({.loss_sum = 1, .tokens = 2, .data_hash = {3, 4, 5, 6}}), page;
  run_op(Tell{&*page, outcome});
  const Outcome& told = *page;
  REQUIRE(told.tokens == 2);
  REQUIRE(told.data_hash[3] == 6);
}

TEST_CASE("upload brings bytes of the host to the device") {
  const std::vector<float, DeviceAllocator<float>> from{1, 2, 3, 4, 5, 6};
  Buffer to(DType::f32, {2, 3});
  run_op(Upload{to, reinterpret_cast<const std::byte*>(from.data())});
  require_close(to, {1, 2, 3, 4, 5, 6}, {0, 0});
}
