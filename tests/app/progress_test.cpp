#include "app/progress.h"

#include <catch2/catch.hpp>

TEST_CASE("durations read like a clock") {
  using trainer::format_duration;
  REQUIRE(format_duration(0) == "0:00");
  REQUIRE(format_duration(65.4) == "1:05");
  REQUIRE(format_duration(3600 + 125) == "1:02:05");
}
