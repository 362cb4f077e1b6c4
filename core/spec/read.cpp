#include "core/spec/read.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <tuple>
#include <unordered_map>

#include "core/spec/rules.h"
#include "core/spec/table.h"

namespace trainer {
namespace {

constexpr size_t kMaxProblems = 100;

const Key<RunSpec>* find_key(const std::string& path) {
  for (const auto& key : spec_table())
    if (key.path == path) return &key;
  return nullptr;
}
const Section* find_section(const std::vector<Section>& sections, const std::string& path) {
  for (const Section& s : sections)
    if (s.path == path) return &s;
  return nullptr;
}
std::string join_path(const std::string& section, const std::string& name) {
  return section.empty() ? name : section + "." + name;
}
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == path.npos ? std::pair{std::string(), path} : std::pair{path.substr(0, dot), path.substr(dot + 1)};
}

// Keys and sections directly inside a section.
std::vector<std::string> names_in(const std::string& section) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& path) {
    if (const auto [parent, name] = split_path(path); parent == section) names.push_back(name);
  };
  for (const auto& key : spec_table()) add(key.path);
  for (const Section& s : spec_sections()) add(s.path);
  return names;
}

// Reads one document, the file or one argument, into the spec.
class DocumentReader {
 public:
  DocumentReader(std::string file, LoadedSpec& loaded, std::set<std::string>& bad)
      : file_(std::move(file)), loaded_(loaded), bad_(bad) {}

  void read_section(const std::string& section, const Node& map) {
    if (map.kind == NodeKind::null && section.empty()) return;
    if (map.kind != NodeKind::map) {
      const std::string what = section.empty() ? "a map of sections" : "a map of keys";
      report(map.mark, section, what, describe(map), fmt::format("the keys are: {}", join(names_in(section), ", ")));
      bad_.insert(section);
      return;
    }
    for (const Entry& entry : map.entries) {
      if (loaded_.problems.size() > kMaxProblems) return;
      read_entry(section, entry);
    }
  }

  void read_entry(const std::string& section, const Entry& entry) {
    const std::string path = join_path(section, entry.key);
    const bool split = path == "data.valid" && entry.value.kind == NodeKind::map;  // {split: 0.9}
    const std::string target = split ? "data.split" : path;
    if (const auto [first, fresh] = seen_.emplace(target, entry.mark); !fresh) {
      report(entry.mark, path, "each key once",
             fmt::format("{} again (first in line {})", target == path ? entry.key : "split", first->second.line),
             "remove one of the two");
      return;
    }
    const bool nested = entry.key.find('.') == entry.key.npos;
    if (const auto* key = nested ? find_key(path) : nullptr) {
      loaded_.origins[target] = {file_, entry.value.mark.line, entry.value.mark.column};
      bad_.erase(target);  // the command line replaces the file's value, though not the file's problem
      if (!key->read(entry.value, loaded_.spec, {file_, path, loaded_.problems, loaded_.unbuilt})) bad_.insert(target);
    } else if (nested && find_section(spec_sections(), path)) {
      loaded_.origins[path] = {file_, entry.mark.line, entry.mark.column};
      read_section(path, entry.value);
    } else if (const auto* reserved = find_section(reserved_keys(), path)) {
      loaded_.unbuilt.push_back({file_, entry.mark.line, entry.mark.column, path, fmt::format("no {}", entry.key),
                                 describe(entry.value), reserved->about + " is not built yet"});
    } else {
      read_unknown(section, entry);
    }
  }

 private:
  std::string file_;
  LoadedSpec& loaded_;
  std::set<std::string>& bad_;
  std::unordered_map<std::string, Mark> seen_;

  void report(Mark at, const std::string& key, std::string wanted, std::string found, std::string advice) {
    loaded_.problems.push_back(
        {file_, at.line, at.column, key, std::move(wanted), std::move(found), std::move(advice)});
  }

  // The path that was probably meant, or "".
  static std::string meant(const std::string& section, const std::string& name) {
    if (const auto alias = path_of_alias(name); !alias.empty()) return std::string(alias);
    if (find_key(name)) return name;  // the whole path as one key
    for (const auto& key : spec_table())
      if (split_path(key.path).second == split_path(name).second) return key.path;
    if (const std::string near = nearest(name, names_in(section)); !near.empty()) return join_path(section, near);
    std::vector<std::string> all;
    for (const auto& key : spec_table()) all.push_back(split_path(key.path).second);
    const std::string near = nearest(name, all);
    if (near.empty()) return "";
    for (const auto& key : spec_table())
      if (split_path(key.path).second == near) return key.path;
    return "";
  }

  void read_unknown(const std::string& section, const Entry& entry) {
    const std::string path = meant(section, entry.key);
    const std::string wanted = section.empty() ? "a section of the run spec" : "a key of " + section;
    const std::string found = entry.key.substr(0, 60);
    if (path.empty()) {
      report(entry.mark, join_path(section, found), wanted, found, "the keys are: " + join(names_in(section), ", "));
      return;
    }
    const auto [parent, name] = split_path(path);
    report(entry.mark, join_path(section, found), wanted, found,
           parent == section ? fmt::format("did you mean {}?", name)
                             : fmt::format("write {} in section {}", name, parent.empty() ? "(top)" : parent));
    // What stands under a misspelt section is still checked; a misspelt key is not missing as well.
    if (find_section(spec_sections(), path) && entry.value.kind == NodeKind::map && !loaded_.origins.contains(path))
      read_section(path, entry.value);
    else bad_.insert(path);
  }
};

void shift_marks(Node& node, int line, int columns) {
  const auto shift = [&](Mark& m) { m = {line, m.column + columns}; };
  shift(node.mark);
  for (Node& item : node.items) shift_marks(item, line, columns);
  for (Entry& entry : node.entries) {
    shift(entry.mark);
    shift_marks(entry.value, line, columns);
  }
}

void read_override(const std::string& argument, int line, LoadedSpec& loaded, std::set<std::string>& bad) {
  const size_t equals = argument.find('=');
  if (equals == argument.npos || equals == 0) {
    loaded.problems.push_back({kCommandLine, line, 1, "", "section.key=value", argument.substr(0, 60),
                               "write, for example, train.steps=1000"});
    return;
  }
  const int columns = int(equals) + 1;
  Entry entry{.mark = {line, 1}};
  try {
    entry.value = parse_yaml(argument.substr(equals + 1));
  } catch (const SyntaxError& e) {
    loaded.problems.push_back(
        {kCommandLine, line, columns + e.mark.column, argument.substr(0, equals), e.wanted, e.found, e.advice});
    return;
  }
  shift_marks(entry.value, line, columns);
  // The longest prefix that is a section; what follows is the key, right or wrong.
  const std::string path = argument.substr(0, equals);
  std::string section;
  size_t begin = 0;
  for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1)) {
    if (!find_section(spec_sections(), path.substr(0, dot))) break;
    section = path.substr(0, dot);
    begin = dot + 1;
  }
  entry.key = path.substr(begin);
  entry.mark.column = int(begin) + 1;
  DocumentReader(kCommandLine, loaded, bad).read_entry(section, entry);
}

void report_missing(LoadedSpec& loaded, std::set<std::string>& bad) {
  for (const auto& key : spec_table()) {
    const auto [section, name] = split_path(key.path);
    if (!key.traits.required || loaded.origins.contains(key.path)) continue;
    if (bad.contains(key.path) || bad.contains(section) || bad.contains("")) continue;
    const Origin at = position_of(loaded, key.path);
    loaded.problems.push_back({at.file, at.line, at.column, key.path, key.legal, "no such key",
                               fmt::format("add {} to section {}", name, section)});
    bad.insert(key.path);
  }
}

void sort_problems(std::vector<SpecProblem>& problems) {
  std::stable_sort(problems.begin(), problems.end(), [](const SpecProblem& a, const SpecProblem& b) {
    return std::tuple(a.file == kCommandLine, a.line, a.column) < std::tuple(b.file == kCommandLine, b.line, b.column);
  });
}

LoadedSpec read_document(const Node& root, const std::vector<std::string>& overrides, const std::string& file) {
  LoadedSpec loaded{.file = file};
  std::set<std::string> bad;
  DocumentReader(file, loaded, bad).read_section("", root);
  for (size_t i = 0; i < overrides.size(); ++i) read_override(overrides[i], int(i) + 1, loaded, bad);
  report_missing(loaded, bad);
  complete_and_check(loaded, bad);
  sort_problems(loaded.problems);
  if (loaded.problems.size() > kMaxProblems) {
    const SpecProblem last = loaded.problems[kMaxProblems - 1];
    loaded.problems.resize(kMaxProblems);
    loaded.problems.push_back({last.file, last.line, last.column, "", fmt::format("at most {} problems", kMaxProblems),
                               "more", "correct the first ones and check again"});
  }
  return loaded;
}

LoadedSpec unreadable(const std::string& file, const SyntaxError& e) {
  LoadedSpec loaded{.file = file};
  loaded.problems.push_back({file, e.mark.line, e.mark.column, "", e.wanted, e.found, e.advice});
  return loaded;
}

}  // namespace

LoadedSpec read_spec_text(const std::string& text, const std::vector<std::string>& overrides, const std::string& file) {
  try {
    return read_document(parse_yaml(text), overrides, file);
  } catch (const SyntaxError& e) { return unreadable(file, e); }
}

LoadedSpec read_spec(const std::string& path, const std::vector<std::string>& overrides) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxSpecBytes + 1, '\0');
  if (!in.is_open()) return unreadable(path, {{}, "a readable file", std::strerror(errno), "correct the path"});
  in.read(text.data(), std::streamsize(text.size()));
  if (in.bad()) return unreadable(path, {{}, "a readable file", std::strerror(errno), "correct the path"});
  text.resize(size_t(in.gcount()));
  return read_spec_text(text, overrides, path);
}

std::vector<SpecProblem> all_problems(const LoadedSpec& loaded) {
  std::vector<SpecProblem> problems = loaded.problems;
  const std::vector<SpecProblem> unbuilt = not_built_yet(loaded);
  problems.insert(problems.end(), unbuilt.begin(), unbuilt.end());
  sort_problems(problems);
  return problems;
}

void throw_problems(const LoadedSpec& loaded) {
  std::vector<SpecProblem> problems = all_problems(loaded);
  if (!problems.empty()) throw SpecError(std::move(problems));
}

RunSpec load_spec(const std::string& path, const std::vector<std::string>& overrides) {
  LoadedSpec loaded = read_spec(path, overrides);
  throw_problems(loaded);
  return std::move(loaded.spec);
}

RunSpec from_json(const nlohmann::json& json, const std::string& file) {
  LoadedSpec loaded = read_document(to_node(json), {}, file);
  if (!loaded.problems.empty()) throw SpecError(std::move(loaded.problems));
  return std::move(loaded.spec);
}

}  // namespace trainer
