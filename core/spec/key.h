// A row of the table: the path of a key, the field it sets, what is legal, its default, and what it means.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/spec/type.h"

namespace trainer {

// A key that has an effect only in some runs. Elsewhere it is refused where given, and not written.
struct Condition {
  std::string words;
  bool (*holds)(const RunSpec&);
};

// The default is the field's in RunSpec{}, unless the key is required or its default is derived from other keys.
struct KeyTraits {
  bool required = false;
  const char* derived = nullptr;  // in words
  const Condition* only = nullptr;
};
inline KeyTraits required() { return {.required = true}; }
inline KeyTraits derived(const char* words) { return {.derived = words}; }
inline KeyTraits only(const Condition& condition) { return {.only = &condition}; }

template <class Owner>
struct Key {
  std::string path, about, legal;
  KeyTraits traits;
  nlohmann::json schema;
  std::function<bool(const Node&, Owner&, const Reading&)> read;
  std::function<nlohmann::json(const Owner&)> write;
};

template <class Owner, class T>
struct Field {
  T& (*of)(Owner&);
  const T& (*in)(const Owner&);
};
template <class Owner, class T>
Key<Owner> key_of(Field<Owner, T> field, const char* path, const Type<T>& type, const char* about,
                  const KeyTraits& traits) {
  return {.path = path,
          .about = about,
          .legal = type.legal,
          .traits = traits,
          .schema = type.schema,
          .read = [=](const Node& node, Owner& owner,
                      const Reading& reading) { return type.read(node, field.of(owner), reading); },
          .write = [=](const Owner& owner) { return type.write(field.in(owner)); }};
}
// Compiled once for all fields of a type, as a hundred closures take a minute.
template <class Owner, class Get, class T>
Key<Owner> make_key(const char* path, Get get, const Type<T>& type, const char* about, const KeyTraits& traits = {}) {
  return key_of(Field<Owner, T>{get, get}, path, type, about, traits);
}
// The path of the key is the path of the field.
#define TRAINER_KEY(Owner, path, ...) \
  make_key<Owner>(                    \
      #path, [](auto& owner) -> auto& { return owner.path; }, __VA_ARGS__)

// A map with fixed keys, as an item of a list.
template <class T>
Type<T> record(std::vector<Key<T>> keys) {
  std::vector<std::string> names;
  nlohmann::json properties = nlohmann::json::object(), needed = nlohmann::json::array();
  std::vector<std::string> legal;
  for (const auto& key : keys) {
    names.push_back(key.path);
    properties[key.path] = key.schema;
    properties[key.path]["description"] = key.about;
    if (key.traits.required) needed.push_back(key.path);
    legal.push_back(fmt::format("{}: {}", key.path, key.legal));
  }
  const auto read_entry = [keys, names](const Entry& entry, T& value, const Reading& reading) {
    for (const auto& key : keys)
      if (key.path == entry.key) return key.read(entry.value, value, reading.inside("." + entry.key));
    const std::string near = nearest(entry.key, names);
    reading.wrong(entry.mark, "one of " + join(names, ", "), entry.key,
                  near.empty() ? "remove it" : fmt::format("did you mean {}?", near));
    return false;
  };
  return {
      .read =
          [keys, read_entry](const Node& node, T& value, const Reading& reading) {
            if (node.kind != NodeKind::map) {
              reading.wrong(node.mark, "a map", describe(node), fmt::format("write {{{}: ...}}", keys[0].path));
              return false;
            }
            bool sound = true;
            std::vector<std::string> seen;
            for (const Entry& entry : node.entries) {
              const bool twice = std::find(seen.begin(), seen.end(), entry.key) != seen.end();
              if (twice) reading.wrong(entry.mark, "each key once", entry.key + " again", "remove one of the two");
              sound = !twice && read_entry(entry, value, reading) && sound;
              if (seen.size() < keys.size()) seen.push_back(entry.key);
            }
            for (const auto& key : keys) {
              if (!key.traits.required || std::find(seen.begin(), seen.end(), key.path) != seen.end()) continue;
              reading.inside("." + key.path)
                  .wrong(node.mark, key.legal, "no such key", fmt::format("add {}", key.path));
              sound = false;
            }
            return sound;
          },
      .write =
          [keys](const T& value) {
            nlohmann::json map;
            for (const auto& key : keys) map[key.path] = key.write(value);
            return map;
          },
      .schema = {{"type", "object"}, {"properties", properties}, {"required", needed}, {"additionalProperties", false}},
      .legal = fmt::format("{{{}}}", join(legal, "; "))};
}

}  // namespace trainer
