// A binary that is built without NCCL.
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "parallel/comm/nccl_backend.h"

using namespace trainer;

TEST_CASE("a binary without NCCL says what is missing") {
  try {
    nccl_version();
    FAIL("a version without a library");
  } catch (const Error& e) {
    REQUIRE(e.code() == Exit::rank);
    REQUIRE_THAT(e.what(), Catch::Contains("built without NCCL") && Catch::Contains("nccl.h"));
  }
}
