#include "io/json_lines.h"

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace trainer {

JsonLines::JsonLines(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "a+"), &std::fclose) {
  check(file_ != nullptr, Exit::disk, "{}: cannot be opened for appending: {}", path, std::strerror(errno));
  if (std::fseek(file_.get(), -1, SEEK_END) == 0 && std::fgetc(file_.get()) != '\n') {
    std::fseek(file_.get(), 0, SEEK_END);
    std::fputc('\n', file_.get());
  }
}

void JsonLines::write(const nlohmann::ordered_json& object) {
  const std::string line = object.dump() + "\n";
  const bool whole =
      std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() && std::fflush(file_.get()) == 0;
  check(whole, Exit::disk, "{}: a line of {} bytes cannot be written: {}; free some space and resume", path_,
        line.size(), std::strerror(errno));
}

}  // namespace trainer
