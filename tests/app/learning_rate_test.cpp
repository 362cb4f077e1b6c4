#include "app/learning_rate.h"

#include <catch2/catch.hpp>

using namespace trainer;

namespace {
double at(ScheduleSpec schedule, int64_t step, int64_t total = 1000) {
  OptimizerSpec optimizer;
  optimizer.lr = 1e-3;
  return learning_rate(optimizer, schedule, step, total);
}
}  // namespace

TEST_CASE("warm-up is linear and reaches the peak with its last step") {
  for (ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    const ScheduleSpec s{.kind = kind, .warmup = 100, .decay = 200};
    REQUIRE(at(s, 0) == Approx(1e-5));
    REQUIRE(at(s, 49) == Approx(5e-4));
    REQUIRE(at(s, 99) == Approx(1e-3));
    REQUIRE(at(s, 100) == Approx(1e-3));
  }
}

TEST_CASE("linear and cosine end at final_lr with the last step, half way they are in the middle") {
  for (ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine}) {
    const ScheduleSpec s{.kind = kind, .warmup = 0, .final_lr = 1e-4};
    REQUIRE(at(s, 999) == Approx(1e-4));
    REQUIRE(at(s, 500, 1001) == Approx(5.5e-4));
  }
}

TEST_CASE("wsd stays, then decays over its last steps in three shapes") {
  ScheduleSpec s{.kind = ScheduleKind::wsd, .warmup = 10, .final_lr = 0, .decay = 101};
  REQUIRE(at(s, 898) == Approx(1e-3));
  REQUIRE(at(s, 899) == Approx(1e-3));
  REQUIRE(at(s, 949) == Approx(5e-4));
  s.shape = DecayShape::cosine;
  REQUIRE(at(s, 949) == Approx(5e-4));
  s.shape = DecayShape::one_minus_sqrt;
  REQUIRE(at(s, 924) == Approx(5e-4));  // a quarter of the decay
  REQUIRE(at(s, 999) == Approx(0).margin(1e-12));
}

TEST_CASE("inverse square root falls with the step, not below final_lr") {
  const ScheduleSpec s{.kind = ScheduleKind::inverse_sqrt, .warmup = 100, .final_lr = 4e-4};
  REQUIRE(at(s, 399) == Approx(5e-4));
  REQUIRE(at(s, 999) == Approx(4e-4));
}
