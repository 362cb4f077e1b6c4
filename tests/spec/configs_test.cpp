#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "core/spec/read.h"

namespace trainer {
namespace {

TEST_CASE("every config reads without problems and says what it is") {
  int configs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PROJECT_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    ++configs;
    INFO(entry.path());
    for (const auto& p : all_problems(read_spec(entry.path().string()))) FAIL_CHECK(to_text(p));
    std::string first;
    std::ifstream in(entry.path());
    std::getline(in, first);
    CHECK_THAT(first, Catch::StartsWith("# ") && Catch::EndsWith(" parameters."));
  }
  CHECK(configs >= 11);
}

}  // namespace
}  // namespace trainer
