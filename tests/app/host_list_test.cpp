#include "app/host_list.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "core/base/error.h"

namespace trainer {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Each line: LIST => the answer of `scontrol show hostnames LIST` (Slurm 22.05.8), nothing where it says "Invalid
// hostlist".
TEST_CASE("host lists expand as scontrol expands them", "[host_list]") {
  std::ifstream file(TESTS_DIR "/app/host_lists.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    INFO(line);
    const size_t arrow = line.find(" => ");
    REQUIRE(arrow != line.npos);
    const std::string list = line.substr(0, arrow), wanted = line.substr(arrow + 4);
    if (wanted.empty()) REQUIRE_THROWS_AS(expand_host_list(list), Error);
    else REQUIRE(joined(expand_host_list(list)) == wanted);
  }
  REQUIRE(cases >= 30);
}

TEST_CASE("nonsense that scontrol lets pass is refused", "[host_list]") {
  for (const char* list : {"", "x[1", "x1]", "x[1-]", "a,,b", ",a", "a,", "a b", "n(1)", "n[99999999999999999999]",
                           "n[1-65536]m[1-2]", "n[[1]]", "[", "]", "n[1]]", "n[1 -2]"}) {
    INFO(list);
    REQUIRE_THROWS_AS(expand_host_list(list), Error);
  }
  REQUIRE_THROWS_WITH(expand_host_list("x[3-1]"), "host list 'x[3-1]': range '3-1' runs backwards");
  REQUIRE(expand_host_list("n[001-1000]").back() == "n1000");
}

TEST_CASE("task counts per node may be uneven", "[host_list]") {
  REQUIRE(expand_task_counts("2(x3),1") == std::vector<int>{2, 2, 2, 1});
  REQUIRE(expand_task_counts("3,1") == std::vector<int>{3, 1});
  REQUIRE(expand_task_counts("8") == std::vector<int>{8});
  for (const char* text : {"", "0", "2(x)", "2(x3", "2x3", "-1", "2(x0)", "2,,1", "2(x3)1", "(x2)", "99999999999"}) {
    INFO(text);
    REQUIRE_THROWS_AS(expand_task_counts(text), Error);
  }
}

}  // namespace
}  // namespace trainer
