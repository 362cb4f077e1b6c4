#include "io/safetensors_set.h"

#include <algorithm>

#include "io/strict_json.h"

namespace trainer {
namespace {

constexpr size_t kMaxIndex = 256 << 20;

bool is_plain_name(const std::string& name) {
  constexpr std::string_view kEnd = ".safetensors";
  const auto plain = [](unsigned char c) { return isalnum(c) || c == '.' || c == '_' || c == '-'; };
  return name.size() > kEnd.size() && name.ends_with(kEnd) && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), plain);
}

std::map<std::string, std::string> read_weight_map(const File& directory) {
  const File file = open_beneath(directory, kSafetensorsIndex, Exit::checkpoint);
  const nlohmann::json json =
      parse_strict_json(read_text(file, kMaxIndex, Exit::checkpoint), file.path(), Exit::checkpoint);
  check(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(), Exit::checkpoint,
        "{}: wanted an object 'weight_map'", file.path());
  check(!json["weight_map"].empty(), Exit::checkpoint, "{}: its weight_map is empty", file.path());
  std::map<std::string, std::string> map;
  for (const auto& [tensor, value] : json["weight_map"].items()) {
    check(value.is_string() && is_plain_name(value.get<std::string>()), Exit::checkpoint,
          "{}: tensor '{}': wanted the name of a .safetensors file in this directory, found {}", file.path(), tensor,
          value.dump());
    map[tensor] = value.get<std::string>();
  }
  return map;
}

void add_part(SafetensorsSet& set, const File& directory, const std::string& name) {
  File file = open_beneath(directory, name, Exit::checkpoint);
  SafetensorsHeader header = read_safetensors_header(file);
  set.parts.push_back({std::move(file), std::move(header)});
}

void fill_tensors(SafetensorsSet& set) {
  for (const auto& part : set.parts)
    for (const auto& entry : part.header.tensors) {
      const auto [at, fresh] = set.tensors.emplace(entry.name, SafetensorsSet::Place{&part, &entry});
      check(fresh, Exit::checkpoint, "tensor '{}' lies in {} and in {}", entry.name, at->second.part->file.path(),
            part.file.path());
    }
}

}  // namespace

SafetensorsSet open_safetensors_set(const std::string& path) {
  const File directory = open_directory(path, Exit::checkpoint);
  SafetensorsSet set;
  if (!exists_beneath(directory, kSafetensorsIndex)) {
    add_part(set, directory, kSafetensorsFile);
    fill_tensors(set);
    return set;
  }
  const auto map = read_weight_map(directory);
  std::vector<std::string> files;
  for (const auto& [tensor, file] : map) files.push_back(file);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  for (const auto& file : files) add_part(set, directory, file);
  fill_tensors(set);
  for (const auto& [tensor, file] : map) {
    const auto found = set.tensors.find(tensor);
    check(found != set.tensors.end() && found->second.part->file.path() == path + "/" + file, Exit::checkpoint,
          "{}: tensor '{}' should lie in {} and does not", path, tensor, file);
  }
  check(map.size() == set.tensors.size(), Exit::checkpoint, "{}: the index names {} tensors, its files hold {}", path,
        map.size(), set.tensors.size());
  return set;
}

}  // namespace trainer
