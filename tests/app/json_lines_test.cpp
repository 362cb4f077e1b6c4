#include "io/json_lines.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"

using namespace trainer;

namespace {
std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}
}  // namespace

TEST_CASE("lines are appended, and a torn line of a killed run is ended first") {
  const auto path = std::filesystem::temp_directory_path() / "trainer_json_lines_test.jsonl";
  std::filesystem::remove(path);
  JsonLines(path).write({{"step", 1}});
  std::ofstream(path, std::ios::app) << "{\"torn";
  JsonLines(path).write({{"step", 2}});
  REQUIRE(text_of(path) == "{\"step\":1}\n{\"torn\n{\"step\":2}\n");
  std::filesystem::remove(path);
}

TEST_CASE("a full disk is an error, not a lost line") {
  JsonLines full("/dev/full");
  REQUIRE_THROWS_AS(full.write({{"step", 1}}), Error);
}
