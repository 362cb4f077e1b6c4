// The rooms are a star: core includes only itself; kernels, parallel and io include core and themselves; app includes all.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"core", {"core"}},
    {"kernels", {"core", "kernels"}},
    {"parallel", {"core", "parallel"}},
    {"io", {"core", "io"}},
    {"app", {"core", "kernels", "parallel", "io", "app"}},
};

std::vector<std::string> wrong_arrows(const std::string& room, const std::string& file, std::istream& in) {
  static const std::regex include("^\\s*#\\s*include\\s*\"([a-z]+)/[^\"]*\"");
  std::vector<std::string> wrong;
  std::smatch match;
  for (std::string line; std::getline(in, line);)
    if (std::regex_search(line, match, include) && !kMayInclude.at(room).contains(match[1]))
      wrong.push_back(file + ": " + line);
  return wrong;
}

}  // namespace

TEST_CASE("no room includes what it must not know") {
  std::vector<std::string> wrong;
  int files = 0;
  for (const auto& [room, allowed] : kMayInclude)
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(PROJECT_DIR) / room)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp") continue;
      std::ifstream in(entry.path());
      const auto found = wrong_arrows(room, fs::relative(entry.path(), PROJECT_DIR), in);
      wrong.insert(wrong.end(), found.begin(), found.end());
      ++files;
    }
  CAPTURE(wrong);
  REQUIRE(wrong.empty());
  REQUIRE(files > 50);
}

TEST_CASE("a wrong arrow is found") {
  std::istringstream in("#include \"core/tensor/tensor.h\"\n#include \"io/tokens.h\"\n");
  REQUIRE(wrong_arrows("kernels", "x.cpp", in) == std::vector<std::string>{"x.cpp: #include \"io/tokens.h\""});
}
