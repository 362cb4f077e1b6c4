// What a value of the spec may be. A type reads a node, writes it back as JSON that it would read again, and describes
// itself for the schema and for people.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/spec/names.h"
#include "core/spec/node.h"
#include "core/spec/problem.h"
#include "core/spec/quantity.h"
#include "core/spec/run_spec.h"

namespace trainer {

// Where reading stands, and where its problems go.
struct Reading {
  const std::string& file;
  std::string key;
  std::vector<SpecProblem>& problems;
  std::vector<SpecProblem>& unbuilt;  // words that are legal, but not built yet

  void wrong(Mark at, std::string wanted, std::string found, std::string advice) const {
    problems.push_back({file, at.line, at.column, key, std::move(wanted), std::move(found), std::move(advice)});
  }
  Reading inside(const std::string& child) const { return {file, key + child, problems, unbuilt}; }
};

template <class T>
struct Type {
  std::function<bool(const Node&, T&, const Reading&)> read;  // false: reported, the value is as it was
  std::function<nlohmann::json(const T&)> write;
  nlohmann::json schema;
  std::string legal;
};

struct IntegerRange {
  int64_t low = 0, high = std::numeric_limits<int64_t>::max();
};
Type<int64_t> integer(IntegerRange, Unit optional_unit = Unit::none);
inline Type<int64_t> steps(int64_t low) { return integer({.low = low}, Unit::steps); }
inline Type<int64_t> tokens(int64_t low) { return integer({.low = low}, Unit::tokens); }

struct RealRange {
  double low = 0, high = std::numeric_limits<double>::infinity();
  bool open_low = false, open_high = false;  // the bound itself is not legal
};
Type<double> real(RealRange);
Type<double> seconds();  // the unit is part of the value: `200ms`
Type<bool> boolean();
Type<std::string> text();
Type<std::string> word(std::vector<std::string> words);
Type<BatchSize> batch();          // sequences, or `4Mi tokens`
Type<RecomputeSpec> recompute();  // none | selective | full | {every: k}

// Names and values of an enumeration; `unbuilt` names are known and refused as not built yet.
template <class E>
struct Choice {
  std::string name;
  E value;
};
struct Words {
  std::vector<std::string> built, unbuilt;
};
// Finds a word; where it is none of them, reports and returns "".
std::string read_word(const Node&, const Words&, const Reading&);
std::string join(const std::vector<std::string>& words, const char* separator);

template <class E>
Type<E> one_of(std::vector<Choice<E>> choices, std::vector<std::string> unbuilt = {}) {
  Words words{.built = {}, .unbuilt = std::move(unbuilt)};
  for (const auto& c : choices) words.built.push_back(c.name);
  std::vector<std::string> all = words.built;
  all.insert(all.end(), words.unbuilt.begin(), words.unbuilt.end());
  return {.read =
              [=](const Node& node, E& value, const Reading& reading) {
                const std::string name = read_word(node, words, reading);
                for (const auto& c : choices)
                  if (c.name == name) value = c.value;
                return !name.empty();
              },
          .write =
              [=](const E& value) {
                for (const auto& c : choices)
                  if (c.value == value) return nlohmann::json(c.name);
                return nlohmann::json();
              },
          .schema = {{"enum", all}},
          .legal = join(words.built, " | ")};
}

// A word stands for "no value": `none`, `auto` or `all`.
template <class T>
Type<std::optional<T>> or_word(std::string name, Type<T> type) {
  return {.read =
              [=](const Node& node, std::optional<T>& value, const Reading& reading) {
                if (node.kind == NodeKind::scalar && node.text == name) {
                  value.reset();
                  return true;
                }
                T inner{};
                if (!type.read(node, inner, reading)) return false;
                value = std::move(inner);
                return true;
              },
          .write = [=](const std::optional<T>& value) { return value ? type.write(*value) : nlohmann::json(name); },
          .schema = {{"anyOf", {nlohmann::json{{"const", name}}, type.schema}}},
          .legal = type.legal + ", or " + name};
}

struct LengthRange {
  size_t low = 0, high = std::numeric_limits<size_t>::max();
};
template <class T>
Type<std::vector<T>> list_of(Type<T> type, LengthRange length = {}) {
  nlohmann::json schema = {{"type", "array"}, {"items", type.schema}, {"minItems", length.low}};
  if (length.high != LengthRange{}.high) schema["maxItems"] = length.high;
  const std::string wanted = length.low == length.high ? fmt::format("a list of {}", length.low) : "a list";
  return {.read =
              [=](const Node& node, std::vector<T>& value, const Reading& reading) {
                const size_t size = node.items.size();
                if (node.kind != NodeKind::list || size < length.low || size > length.high) {
                  const bool list = node.kind == NodeKind::list;
                  reading.wrong(node.mark, wanted, list ? fmt::format("a list of {}", size) : describe(node),
                                fmt::format("write [...] with: {}", type.legal));
                  return false;
                }
                std::vector<T> items(size);
                bool sound = true;
                for (size_t i = 0; i < size; ++i)
                  sound = type.read(node.items[i], items[i], reading.inside(fmt::format("[{}]", i))) && sound;
                if (sound) value = std::move(items);
                return sound;
              },
          .write =
              [=](const std::vector<T>& value) {
                auto list = nlohmann::json::array();
                for (const T& item : value) list.push_back(type.write(item));
                return list;
              },
          .schema = std::move(schema),
          .legal = wanted + ": " + type.legal};
}

// A word (`none`, `auto`) stands for the empty list.
template <class T>
Type<std::vector<T>> or_empty(std::string name, Type<std::vector<T>> list) {
  auto [read, write, schema, legal] = list;
  return {.read =
              [read, name](const Node& node, std::vector<T>& value, const Reading& reading) {
                if (node.kind != NodeKind::scalar || node.text != name) return read(node, value, reading);
                value.clear();
                return true;
              },
          .write = [write,
                    name](const std::vector<T>& value) { return value.empty() ? nlohmann::json(name) : write(value); },
          .schema = {{"anyOf", {nlohmann::json{{"const", name}}, schema}}},
          .legal = legal + ", or " + name};
}

}  // namespace trainer
