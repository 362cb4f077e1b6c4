// The real library, where there is one: it loads and says its version. No GPU is needed for that.
#include <dlfcn.h>

#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "parallel/comm/nccl/nccl_api.h"
#include "parallel/comm/nccl_backend.h"

using namespace trainer;

TEST_CASE("NCCL is loaded and says its version, or the error says what is missing") {
  if (dlopen("libnccl.so.2", RTLD_NOW)) {
    REQUIRE_THAT(nccl_version(), Catch::StartsWith("2."));
    REQUIRE(nccl().ncclCommRegister != nullptr);
    return;
  }
  try {
    nccl_version();
    FAIL("a version without a library");
  } catch (const Error& e) {
    REQUIRE(e.code() == Exit::rank);
    REQUIRE_THAT(e.what(), Catch::Contains("libnccl.so.2") && Catch::Contains("install libnccl2"));
  }
}
