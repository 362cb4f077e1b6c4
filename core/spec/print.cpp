#include "core/spec/print.h"

#include <algorithm>
#include <regex>

#include "core/spec/table.h"

namespace trainer {
namespace {

using nlohmann::json;

json::json_pointer pointer(std::string path) {
  std::replace(path.begin(), path.end(), '.', '/');
  return json::json_pointer(fmt::format("/{}", path));
}

bool in_effect(const Key<RunSpec>& key, const RunSpec& spec) {
  return !key.traits.only || key.traits.only->holds(spec);
}

// Flow style; words without special characters stand without quotes.
std::string yaml_text(const json& value) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const bool plain =
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./ ") == text.npos;
    const bool number_like =
        text.find_first_of("-.0123456789") == 0 && text.find_first_not_of("-+.0123456789eE") == text.npos;
    const bool word = text == "true" || text == "false" || text == "null";
    return plain && !text.empty() && !number_like && !word && text.front() != ' ' && text.back() != ' ' &&
                   text.front() != '-'
               ? text
               : value.dump();
  }
  std::vector<std::string> parts;
  if (value.is_array()) {
    for (const json& item : value) parts.push_back(yaml_text(item));
    return fmt::format("[{}]", join(parts, ", "));
  }
  if (value.is_object()) {
    for (const auto& [name, item] : value.items()) parts.push_back(name + ": " + yaml_text(item));
    return fmt::format("{{{}}}", join(parts, ", "));
  }
  return value.dump();
}

std::string default_text(const Key<RunSpec>& key) {
  if (key.traits.required) return "required";
  if (key.traits.derived) return key.traits.derived;
  return fmt::format("`{}`", yaml_text(key.write(RunSpec{})));
}

json object_schema(const std::string& about) {
  json object = {{"type", "object"}, {"additionalProperties", false}, {"properties", json::object()}};
  if (!about.empty()) object["description"] = about;
  return object;
}

json::json_pointer schema_pointer(const std::string& path) {
  json::json_pointer at;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    at = at / "properties" / path.substr(begin, end - begin);
    begin = end + 1;
  }
  return at;
}

std::string origin_text(const LoadedSpec& loaded, const Key<RunSpec>& key) {
  const auto found = loaded.origins.find(key.path);
  if (found == loaded.origins.end())
    return key.traits.derived ? fmt::format("default: {}", key.traits.derived) : "default";
  const Origin& o = found->second;
  return o.file == kCommandLine ? fmt::format("command line, argument {}", o.line)
                                : fmt::format("{}:{}", o.file, o.line);
}

}  // namespace

std::string json_schema() {
  json schema = object_schema("The run spec of trainer.");
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "trainer run spec";
  for (const Section& section : spec_sections()) schema[schema_pointer(section.path)] = object_schema(section.about);
  for (const auto& key : spec_table()) {
    json& property = schema[schema_pointer(key.path)];
    property = key.schema;
    property["description"] = key.about;
    if (!key.traits.required && !key.traits.derived) property["default"] = key.write(RunSpec{});
    if (!key.traits.required) continue;
    const std::string section = key.path.substr(0, key.path.rfind('.'));
    schema[schema_pointer(section)]["required"].push_back(key.path.substr(section.size() + 1));
    if (const json& needed = schema["required"]; std::find(needed.begin(), needed.end(), section) == needed.end())
      schema["required"].push_back(section);
  }
  return schema.dump(2) + "\n";
}

std::string spec_markdown() {
  std::string page =
      "# The run spec\n\n"
      "Every key of a run's YAML, made from `core/spec/table.cpp` (a test compares; `test_spec \"[write]\"` writes "
      "this page anew).\n"
      "`trainer check --config X` names every problem of a spec at once, `trainer check --schema` prints a JSON Schema "
      "for editors.\n"
      "On the command line, `section.key=value` sets a key with the same checks.\n\n"
      "Numbers may have a scale: `k`, `M`, `B` (or `G`), `T` are powers of 1000, `Ki`, `Mi`, `Gi`, `Ti` of 1024. "
      "Counts may name their\n"
      "unit (`1000 steps`, `250B tokens`); a time must (`200ms`, `5s`). A key that is unknown, given twice, or without "
      "effect is an error.\n";
  for (const Section& section : spec_sections()) {
    page += fmt::format("\n## {}\n{}\n\n| key | legal | default | what it is |\n|---|---|---|---|\n", section.path,
                        section.about);
    for (const auto& key : spec_table()) {
      if (key.path.substr(0, key.path.rfind('.')) != section.path) continue;
      const std::string legal = std::regex_replace(key.legal, std::regex("\\|"), "\\|");
      const std::string only = key.traits.only ? fmt::format(" Only with {}.", key.traits.only->words) : "";
      page += fmt::format("| `{}` | {} | {} | {}{} |\n", key.path.substr(section.path.size() + 1), legal,
                          default_text(key), key.about, only);
    }
  }
  page += "\n## Not built yet\nThese names are taken and refused:";
  for (const Section& reserved : reserved_keys())
    page +=
        fmt::format(" `{}` ({}){}", reserved.path, reserved.about, &reserved == &reserved_keys().back() ? ".\n" : ",");
  return page;
}

std::string resolved_yaml(const LoadedSpec& loaded) {
  std::string text = fmt::format("# Every value in effect of {}, and where it came from.\n", loaded.file);
  std::string open;  // the section that the last key stood in
  for (const auto& key : spec_table()) {
    if (!in_effect(key, loaded.spec)) continue;
    size_t begin = 0, depth = 0;
    for (size_t dot = key.path.find('.'); dot != key.path.npos; dot = key.path.find('.', begin)) {
      const std::string section = key.path.substr(0, dot);
      if (!(open + ".").starts_with(section + "."))
        text += fmt::format("{:{}}{}:\n", "", 2 * depth, section.substr(begin));
      begin = dot + 1;
      ++depth;
    }
    open = key.path.substr(0, begin - 1);
    const std::string line =
        fmt::format("{:{}}{}: {}", "", 2 * depth, key.path.substr(begin), yaml_text(key.write(loaded.spec)));
    text += fmt::format("{:<48}  # {}\n", line, origin_text(loaded, key));
  }
  return text;
}

json to_json(const RunSpec& spec) {
  json object = json::object();
  for (const auto& key : spec_table())
    if (in_effect(key, spec)) object[pointer(key.path)] = key.write(spec);
  return object;
}

json model_json(const ModelSpec& model) {
  RunSpec spec;
  spec.model = model;
  return to_json(spec)["model"];
}

}  // namespace trainer
