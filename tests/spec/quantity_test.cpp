#include "core/spec/quantity.h"

#include <catch2/catch.hpp>

namespace trainer {
namespace {

TEST_CASE("numbers with scales and units") {
  struct Case {
    const char* text;
    int64_t whole;
    Unit unit;
  };
  for (const Case& c :
       {Case{"7", 7, Unit::none}, Case{"-3", -3, Unit::none}, Case{"4Ki", 4096, Unit::none},
        Case{"2M", 2'000'000, Unit::none}, Case{"1.5k", 1500, Unit::none}, Case{"1e6", 1'000'000, Unit::none},
        Case{"15T", 15'000'000'000'000, Unit::none}, Case{"250B tokens", 250'000'000'000, Unit::tokens},
        Case{"4Mi tokens", 4 << 20, Unit::tokens}, Case{"1 step", 1, Unit::steps},
        Case{"1000 steps", 1000, Unit::steps}, Case{"8 sequences", 8, Unit::sequences}, Case{"30s", 30, Unit::seconds},
        Case{"2min", 120, Unit::seconds}, Case{"64GiB", 64ll << 30, Unit::bytes},
        Case{"64 GiB", 64ll << 30, Unit::bytes}, Case{"9223372036854775807", INT64_MAX, Unit::none}}) {
    const auto q = parse_quantity(c.text);
    INFO(c.text);
    REQUIRE(q);
    REQUIRE(q->whole);
    CHECK(*q->whole == c.whole);
    CHECK(q->unit == c.unit);
  }
  CHECK(parse_quantity("200ms")->real == Approx(0.2));
  CHECK(parse_quantity("3.0e-4")->real == 3.0e-4);
}

TEST_CASE("what is not whole, and what is no number") {
  for (const char* text : {"2.5", "9223372036854775808", "9223372036854775807Ki", "200ms", "1e30"}) {
    INFO(text);
    REQUIRE(parse_quantity(text));
    CHECK(!parse_quantity(text)->whole);
  }
  for (const char* text : {"", "-", "nan", ".nan", "inf", "-inf", "1e999", "1e-999", "0x10", "two", "4 Ki", "5 epochs",
                           "5Ki ms", "1,000", "1_000", "5 steps tokens", "--5", "+5", "5s steps"}) {
    INFO(text);
    CHECK(!parse_quantity(text));
  }
}

}  // namespace
}  // namespace trainer
