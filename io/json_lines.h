// An append-only file of one JSON object per line, flushed per line: what a crashed run leaves is whole.
#pragma once
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace trainer {

class JsonLines {
 public:
  // Opens for appending; a torn last line of a killed run is ended first. Throws Error(disk).
  explicit JsonLines(const std::string& path);
  // Throws Error(disk) where the line cannot be written whole.
  void write(const nlohmann::ordered_json& object);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace trainer
