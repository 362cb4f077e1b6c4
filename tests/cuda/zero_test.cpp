#include <catch2/catch.hpp>

#include "run_op.h"

using namespace trainer;
using namespace trainer::test;

TEST_CASE("zero clears a tensor on the device") {
  Buffer x(DType::f32, {5, 3}, Values(15, 7.0));
  run_op(Zero{x});
  REQUIRE(x.values() == Values(15));
}
