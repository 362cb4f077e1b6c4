// From YAML and the command line to a RunSpec, strictly: every problem at once, each with its place, and no value that
// is ignored.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/spec/problem.h"
#include "core/spec/run_spec.h"

namespace trainer {

struct Origin {
  std::string file;
  int line = 1, column = 1;
};

struct LoadedSpec {
  RunSpec spec = {};  // keys with problems hold their default
  std::string file = {};
  std::vector<SpecProblem> problems = {};      // in the file's order, then the command line's
  std::vector<SpecProblem> unbuilt = {};       // legal keys and words of what is not built yet, met while reading
  std::map<std::string, Origin> origins = {};  // of every key and section that is given
};

// Overrides are `section.key=value`, the value being YAML; the last of the same key wins.
LoadedSpec read_spec(const std::string& path, const std::vector<std::string>& overrides = {});
LoadedSpec read_spec_text(const std::string& text, const std::vector<std::string>& overrides = {},
                          const std::string& file = "spec.yaml");

// What the spec asks for that is legal, but not built yet.
std::vector<SpecProblem> not_built_yet(const LoadedSpec&);

// All problems of both kinds, in order.
std::vector<SpecProblem> all_problems(const LoadedSpec&);

// Throws SpecError with all of them, where there are any.
void throw_problems(const LoadedSpec&);
RunSpec load_spec(const std::string& path, const std::vector<std::string>& overrides = {});

// The inverse of to_json, with all the reader's checks. Throws SpecError, whose messages name `file`.
RunSpec from_json(const nlohmann::json&, const std::string& file);

}  // namespace trainer
