#include "core/spec/print.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/spec/table.h"
#include "tests/spec/small_spec.h"

namespace trainer {
namespace {

using nlohmann::json;

constexpr const char* kPage = PROJECT_DIR "/docs/SPEC.md";

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST_CASE("docs/SPEC.md is what the table gives") {
  const bool same = read_file(kPage) == spec_markdown();
  INFO("write it anew with: test_spec \"[write]\"");
  CHECK(same);
}
TEST_CASE("writes docs/SPEC.md", "[.][write]") { std::ofstream(kPage) << spec_markdown(); }

TEST_CASE("the schema is JSON and has every key of the table") {
  const json schema = json::parse(json_schema());
  CHECK(schema["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  CHECK(schema["additionalProperties"] == false);
  CHECK(schema["required"] == json{"model", "data", "train"});
  for (const auto& key : spec_table()) {
    INFO(key.path);
    const json* at = &schema;
    std::stringstream path(key.path);
    for (std::string name; std::getline(path, name, '.');) {
      CHECK((*at)["additionalProperties"] == false);
      REQUIRE(at->at("properties").contains(name));
      at = &at->at("properties").at(name);
    }
    CHECK(at->at("description") == key.about);
    CHECK((at->contains("type") || at->contains("enum") || at->contains("anyOf")));
  }
  const json& recompute = schema["properties"]["memory"]["properties"]["recompute"];
  CHECK(recompute["anyOf"][1]["required"] == json::array({"every"}));
  CHECK(schema["properties"]["train"]["required"] == json::array({"global_batch"}));
  CHECK(schema["properties"]["optimizer"]["properties"]["lr"]["default"] == 3e-4);
}

const std::vector<std::vector<std::string>> kVariants = {
    {},
    {"model.family=gpt2", "model.dropout=0.1", "optimizer.lr=0.00123456789012345"},
    {"model.rope.scaling={kind: llama3, factor: 8.5}", "model.sliding_window=16",
     "train.ramp=[{tokens: 0, global_batch: 128 tokens}]"},
    {"schedule={kind: wsd, decay: 10, shape: 1-sqrt}", "memory.recompute={every: 3}", "train.seed=9223372036854775807"},
    {"data.split=none", "data.valid=[{path: \"true\"}, {path: \"12\", weight: 0.1}]", "log.dir=\"a: #b\"",
     "parallel.zero_shard=4"},
    {"train.steps=none", "train.tokens=15T", "train.global_batch=1Ki tokens", "train.eval_sequences=all",
     "train.clip=none", "parallel.pipeline.schedule={custom: plan.txt}"},
};

TEST_CASE("a spec goes to JSON and back") {
  for (const auto& overrides : kVariants) {
    const LoadedSpec loaded = read_spec_text(kSmallSpec, overrides);
    for (const auto& p : loaded.problems) FAIL_CHECK(to_text(p));
    const json object = to_json(loaded.spec);
    const RunSpec back = from_json(json::parse(object.dump()), "MANIFEST.json");
    CHECK(to_json(back) == object);
    CHECK(back.optimizer.lr == loaded.spec.optimizer.lr);
    CHECK(back.train.seed == loaded.spec.train.seed);
    CHECK(model_json(loaded.spec.model) == object["model"]);
  }
}

TEST_CASE("JSON of a manifest is checked like a file") {
  json object = to_json(read_spec_text(kSmallSpec).spec);
  object["model"]["num_layers"] = "two";
  object["model"]["n_embd"] = 3;
  CHECK_THROWS_WITH(
      from_json(object, "MANIFEST.json"),
      Catch::Contains("MANIFEST.json:1:1: model.num_layers: wanted integer") && Catch::Contains("n_embd"));
  CHECK_THROWS_AS(from_json(json::array(), "MANIFEST.json"), SpecError);
}

TEST_CASE("resolved.yaml says where each value came from, and reads back as the same spec") {
  for (const auto& overrides : kVariants) {
    const LoadedSpec loaded = read_spec_text(kSmallSpec, overrides);
    const std::string text = resolved_yaml(loaded);
    const LoadedSpec back = read_spec_text(text);
    INFO(text);
    for (const auto& p : back.problems) FAIL_CHECK(to_text(p));
    CHECK(to_json(back.spec) == to_json(loaded.spec));
  }
  const std::string text = resolved_yaml(read_spec_text(kSmallSpec, {"optimizer.lr=1e-3", "model.rope.theta=20000"}));
  const auto has = [&](const std::string& start, const std::string& origin) {
    const size_t at = text.find("\n" + start);
    REQUIRE(at != text.npos);
    CHECK_THAT(text.substr(at + 1, text.find('\n', at + 1) - at - 1), Catch::EndsWith("# " + origin));
  };
  has("  num_layers: 2 ", "spec.yaml:1");
  has("  split: 0.9 ", "spec.yaml:2");
  has("  lr: 0.001 ", "command line, argument 1");
  has("    theta: 20000.0 ", "command line, argument 2");
  has("  weight_decay: 0.1 ", "default");
  has("  num_kv_heads: 4 ", "default: model.num_heads");
}

}  // namespace
}  // namespace trainer
