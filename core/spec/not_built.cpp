#include "core/spec/read.h"
#include "core/spec/rules.h"
#include "core/spec/table.h"

namespace trainer {
namespace {

bool ends_with(const std::string& text, std::string_view end) { return std::string_view(text).ends_with(end); }

// A tokenizer file other than SentencePiece's.
bool other_tokenizer(const RunSpec& s) {
  const std::string& t = s.data.tokenizer;
  return t != "none" && t != "bytes" && t != "chars" && !ends_with(t, ".model");
}

struct Unbuilt {
  const char *path, *works, *what;
  bool (*asked)(const RunSpec&);
};
constexpr Unbuilt kUnbuilt[] = {
    {"data.tokenizer", "none | bytes | chars | a SentencePiece .model", "another kind of tokenizer", other_tokenizer},
    {"parallel.cp", "1", "context parallelism", [](const RunSpec& s) { return s.parallel.cp > 1; }},
    {"parallel.ep", "1", "expert parallelism", [](const RunSpec& s) { return s.parallel.ep > 1; }},
    {"precision.master", "fp32", "a bf16 master",
     [](const RunSpec& s) { return s.precision.master != Precision::fp32; }},
    {"checkpoint.asynchronous", "false", "asynchronous saving",
     [](const RunSpec& s) { return s.checkpoint.asynchronous; }},
    {"checkpoint.fast_dir", "none", "a second, fast directory",
     [](const RunSpec& s) { return s.checkpoint.fast_dir.has_value(); }},
    {"checkpoint.fast_every", "none", "a second, fast directory",
     [](const RunSpec& s) { return s.checkpoint.fast_every.has_value(); }},
    {"checkpoint.remote", "none", "object storage", [](const RunSpec& s) { return s.checkpoint.remote.has_value(); }},
    {"resilience.spares", "0", "replacing ranks", [](const RunSpec& s) { return s.resilience.spares > 0; }},
    {"device.costs", "none", "a file of block times", [](const RunSpec& s) { return s.device.costs.has_value(); }},
};

std::string value_text(const RunSpec& spec, const std::string& path) {
  for (const auto& key : spec_table()) {
    if (key.path != path) continue;
    const nlohmann::json value = key.write(spec);
    return value.is_string() ? value.get<std::string>() : value.dump();
  }
  return "";
}

}  // namespace

std::vector<SpecProblem> not_built_yet(const LoadedSpec& loaded) {
  std::vector<SpecProblem> problems = loaded.unbuilt;
  for (const auto& [path, works, what, asked] : kUnbuilt) {
    if (!asked(loaded.spec)) continue;
    const Origin at = position_of(loaded, path);
    problems.push_back({at.file, at.line, at.column, path, works, value_text(loaded.spec, path),
                        fmt::format("{} is not built yet", what)});
  }
  return problems;
}

}  // namespace trainer
