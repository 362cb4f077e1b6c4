// Each broken/NAME.yaml gives exactly the problems of NAME.expected: `line:column key | wanted | found | advice`, the
// last three as parts of the message.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/spec/read.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> broken_specs() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(TESTS_DIR "/spec/broken"))
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> lines_of(fs::path path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(" | ", begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = end + 3;
  }
  return fields;
}

TEST_CASE("every broken spec gives its problems, all at once and in order") {
  const auto paths = broken_specs();
  CHECK(paths.size() >= 40);
  for (const fs::path& path : paths) {
    const auto problems = all_problems(read_spec(path.string()));
    const auto expected = lines_of(fs::path(path).replace_extension(".expected"));
    std::string all;
    for (const SpecProblem& p : problems) all += to_text(p) + "\n";
    INFO(path.filename().string() << " gives\n" << all);
    CHECK(!expected.empty());
    REQUIRE(problems.size() == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto fields = fields_of(expected[i]);
      const SpecProblem& p = problems[i];
      REQUIRE(fields.size() == 4);
      const std::string key = p.key.empty() ? "-" : p.key;
      CHECK(fields[0] == std::to_string(p.line) + ":" + std::to_string(p.column) + " " + key);
      CHECK_THAT(p.wanted, Catch::Contains(fields[1]));
      CHECK_THAT(p.found, Catch::Contains(fields[2]));
      CHECK_THAT(p.advice, Catch::Contains(fields[3]));
    }
  }
}

}  // namespace
}  // namespace trainer
