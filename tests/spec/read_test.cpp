#include "core/spec/read.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <ctime>

#include "core/spec/node.h"
#include "tests/spec/small_spec.h"

namespace trainer {
namespace {

TEST_CASE("the smallest spec, with defaults that follow from it") {
  const LoadedSpec loaded = read_spec_text(kSmallSpec);
  REQUIRE(all_problems(loaded).empty());
  const RunSpec& s = loaded.spec;
  CHECK(s.model.num_kv_heads == 4);
  CHECK(s.model.head_dim == 16);
  CHECK(!s.model.tie_embeddings);
  CHECK(s.data.seq_len == 32);
  CHECK(*s.data.split == 0.9);
  CHECK(s.precision.compute == Precision::bf16);
  CHECK(!s.checkpoint.asynchronous);
}

TEST_CASE("gpt2 has biases, a tied head and an MLP of four times its width") {
  const auto s = read_spec_text(kSmallSpec, {"model.family=gpt2"}).spec;
  CHECK(s.model.tie_embeddings);
  CHECK(s.model.qkv_bias);
  const auto t = read_spec_text(
      "model: {family: gpt2, num_layers: 1, hidden_size: 8, num_heads: 2, vocab_size: 9, max_seq_len: 4}\n"
      "data: {train: [{path: a}]}\ntrain: {steps: 1, global_batch: 1}\n");
  CHECK(t.problems.empty());
  CHECK(t.spec.model.ffn_hidden_size == 32);
}

TEST_CASE("gradients are summed over ranks in their own dtype unless the spec says otherwise") {
  const auto reduce = [](std::vector<std::string> overrides) {
    return read_spec_text(kSmallSpec, overrides).spec.precision.reduce;
  };
  CHECK(reduce({}) == Precision::fp32);
  CHECK(reduce({"precision.gradients=bf16"}) == Precision::bf16);
  CHECK(reduce({"precision.gradients=bf16", "precision.reduce=fp32"}) == Precision::fp32);
  CHECK(reduce({"precision.reduce=bf16"}) == Precision::bf16);
}

TEST_CASE("every key of the reference is known, and only what is not built is refused") {
  const LoadedSpec loaded = read_spec(TESTS_DIR "/spec/every_key.yaml");
  for (const auto& p : loaded.problems) FAIL_CHECK(to_text(p));
  std::vector<std::string> keys;
  for (const auto& p : not_built_yet(loaded)) keys.push_back(p.key);
  CHECK(keys == std::vector<std::string>{"data.tokenizer", "checkpoint.asynchronous", "checkpoint.fast_every"});
  CHECK(loaded.spec.resilience.heartbeat == Approx(0.2));
  CHECK(loaded.spec.data.train.size() == 2);
  CHECK(loaded.spec.data.train[1].weight == 0.3);
  CHECK(loaded.spec.model.rope.scaling.kind == RopeScalingKind::llama3);
}

TEST_CASE("overrides replace values, nested ones too") {
  const auto loaded = read_spec_text(
      kSmallSpec, {"model.rope.theta=500000", "model.rope.scaling={kind: llama3, factor: 32}", "train.steps=none",
                   "train.tokens=1M tokens", "train.global_batch=1Ki tokens", "memory.recompute={every: 2}",
                   "train.clip=none", "data.train=[{path: x, weight: 2}, {path: y}]", "log.dir=runs/a b",
                   "data.valid={split: 0.5}", "parallel.pipeline.schedule={custom: plans/mine.txt}"});
  for (const auto& p : all_problems(loaded)) FAIL_CHECK(to_text(p));
  const RunSpec& s = loaded.spec;
  CHECK(s.model.rope.theta == 500000);
  CHECK(s.model.rope.scaling.factor == 32);
  CHECK(!s.train.steps);
  CHECK(*s.train.tokens == 1'000'000);
  CHECK(sequences_per_step(s, 0) == 32);
  CHECK(s.memory.recompute.every == 2);
  CHECK(s.parallel.pipeline.schedule == PipelineKind::custom);
  CHECK(s.parallel.pipeline.file == "plans/mine.txt");
  CHECK(!s.train.clip);
  CHECK(s.data.train.size() == 2);
  CHECK(s.log.dir == "runs/a b");
  CHECK(*s.data.split == 0.5);
  CHECK(loaded.origins.at("model.rope.theta").file == kCommandLine);
  CHECK(loaded.origins.at("model.num_layers").file == "spec.yaml");
  CHECK(loaded.origins.at("train.global_batch").line == 5);
}

TEST_CASE("overrides have the same checks, and a place: the argument and its column") {
  const auto problems =
      read_spec_text(kSmallSpec, {"train.steps=two", "modle.num_layers=3", "model.n_layers=3", "steps",
                                  "optimizer.betas=[0.9, 2]", "model.rope.theta.x=1", "log.dir=[", "data={}x"})
          .problems;
  std::vector<std::string> places;
  for (const auto& p : problems) {
    CHECK(p.file == kCommandLine);
    places.push_back(std::to_string(p.line) + ":" + std::to_string(p.column) + " " + p.key);
  }
  CHECK(places == std::vector<std::string>{"1:13 train.steps", "2:1 modle.num_layers", "3:7 model.n_layers", "4:1 ",
                                           "5:23 optimizer.betas[1]", "6:12 model.rope.theta.x", "7:9 log.dir",
                                           "8:8 data"});
  CHECK_THAT(problems[1].advice, Catch::Contains("num_layers in section model"));
}

TEST_CASE("the ramp's last step that has begun counts") {
  const auto s =
      read_spec_text(kSmallSpec, {"train.ramp=[{tokens: 0, global_batch: 4}, {tokens: 1K, global_batch: 256 tokens}]"})
          .spec;
  CHECK(sequences_per_step(s, 0) == 4);
  CHECK(sequences_per_step(s, 999) == 4);
  CHECK(sequences_per_step(s, 1000) == 8);
}

TEST_CASE("load_spec throws every problem in one error of exit code 10") {
  try {
    load_spec(TESTS_DIR "/spec/broken/many-kinds.yaml", {"train.seed=-1"});
    FAIL("no error");
  } catch (const SpecError& e) {
    CHECK(e.code() == Exit::spec);
    CHECK(e.problems().size() == 11);
    CHECK_THAT(
        e.what(),
        Catch::Contains("many-kinds.yaml:3:11: model.family: wanted gpt2 | llama, found lama; did you mean llama?\n"));
    CHECK_THAT(
        e.what(),
        Catch::EndsWith("command line:1:12: train.seed: wanted integer >= 0, found -1; the nearest legal value is 0"));
  }
  CHECK_THROWS_WITH(load_spec("/nonexistent/x.yaml"),
                    Catch::Contains("/nonexistent/x.yaml:1:1: wanted a readable file"));
  CHECK_THROWS_AS(load_spec("/"), SpecError);
}

std::string repeat(const std::string& part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // slower, and freed memory is kept
#else
constexpr bool kSanitized = false;
#endif

TEST_CASE("hostile files are refused quickly and in little memory") {
  const size_t n = kMaxSpecBytes - 16;
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'z'; ++c)
    bomb += fmt::format("{}: &{} [{}]\n", c, c, repeat(fmt::format("*{},", char(c - 1)), 9));
  std::string many_keys, steps;
  for (int i = 0; many_keys.size() < n - 16; ++i) many_keys += fmt::format("k{}: 1\n", i);
  for (int i = 0; steps.size() < n / 2; ++i) steps += fmt::format("{:{}}a:\n", "", i % 100);
  const std::pair<const char*, std::string> files[] = {
      {"alias bomb", bomb},
      {"open lists", std::string(n, '[')},
      {"open maps", std::string(n, '{')},
      {"nested lists", repeat("- ", n / 2)},
      {"nested keys", repeat("? ", n / 2)},
      {"colons", repeat(": ", n / 2)},
      {"a:a:a:", repeat("a: ", n / 3)},
      {"open quote", "a: \"" + std::string(n - 8, 'x')},
      {"quotes", "a: [" + repeat("\"\",", n / 3 - 4)},
      {"anchors", repeat("&a ", n / 3)},
      {"tags", repeat("! ", n / 2)},
      {"one key", std::string(n, 'x') + ": 1"},
      {"many keys", many_keys},
      {"stairs", steps},
      {"huge", std::string(64 * kMaxSpecBytes, 'a')},
      {"binary", std::string(1000, '\0')},
      {"not UTF-8", repeat("\xff\xfe\x80: 1\n", 1000)},
      {"documents", repeat("---\n", n / 4)},
      {"comments", repeat("#\n", n / 2)},
      {"block scalar", "a: |\n" + repeat("  x\n", n / 4 - 4)},
  };
  const long before = peak_kib();
  for (const auto& [name, text] : files) {
    INFO(name);
    const std::clock_t begin = std::clock();
    const auto loaded = read_spec_text(text);
    const double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
    CHECK(!loaded.problems.empty());
    CHECK(loaded.problems.size() <= 101);
    CHECK(seconds < (kSanitized ? 2 : 0.2));
  }
  if (!kSanitized) CHECK(peak_kib() - before < 64 * 1024);
}

}  // namespace
}  // namespace trainer
