#include "app/check.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

namespace trainer {
namespace {

TEST_CASE("check prints one line per problem and exits with 10") {
  std::ostringstream out, err;
  const std::string path = TESTS_DIR "/spec/broken/duplicate-key.yaml";
  CHECK(run_check(path, {}, false, out, err) == 10);
  CHECK(out.str().empty());
  CHECK(err.str() == path +
                         ":6:3: model.hidden_size: wanted each key once, found hidden_size again (first in line 4); "
                         "remove one of the two\n" +
                         path +
                         ":7:3: model.num_heads: wanted each key once, found num_heads again (first in line 5); remove "
                         "one of the two\n");
}

TEST_CASE("check --json names the fields") {
  std::ostringstream out, err;
  CHECK(run_check(TESTS_DIR "/spec/broken/typo-key.yaml", {}, true, out, err) == 10);
  CHECK(err.str().empty());
  const auto error = nlohmann::json::parse(out.str()).at("errors").at(0);
  CHECK(error.at("line") == 5);
  CHECK(error.at("column") == 3);
  CHECK(error.at("key") == "model.num_haeds");
  CHECK(error.at("found") == "num_haeds");
  CHECK(error.at("advice") == "did you mean num_heads?");
  CHECK(error.contains("wanted"));
  CHECK(error.contains("file"));
}

TEST_CASE("check of a sound spec exits with 0") {
  std::ostringstream out, err, json;
  const std::string path = PROJECT_DIR "/configs/gpt2-124m.yaml";
  CHECK(run_check(path, {}, false, out, err) == 0);
  CHECK(out.str() == "ok: " + path + "\n");
  CHECK(run_check(path, {}, true, json, err) == 0);
  CHECK(nlohmann::json::parse(json.str()) == nlohmann::json{{"errors", nlohmann::json::array()}});
}

}  // namespace
}  // namespace trainer
