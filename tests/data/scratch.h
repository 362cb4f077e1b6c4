// A folder that goes away with the test, and token files in it.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "io/tokens.h"

namespace trainer {

class Scratch {
 public:
  Scratch() {
    std::string path = std::filesystem::temp_directory_path() / "trainer-data-XXXXXX";
    check(::mkdtemp(path.data()) != nullptr, Exit::disk, "{} cannot be made", path);
    path_ = path;
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}
inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Documents as given, in PREFIX.bin, .idx and .json.
inline std::string write_tokens(const std::string& prefix, const std::vector<std::vector<int32_t>>& documents,
                                int64_t vocab_size) {
  TokenWriter writer(prefix, vocab_size);
  for (const auto& document : documents) writer.add_document(document);
  TokenManifest manifest;
  manifest.tokenizer = manifest.tokenizer_hash = "none";
  writer.finish(manifest);
  return prefix;
}

// What the call throws, or "" where it throws nothing; "?" before the message where the exit code is another than
// `code`.
template <class Call>
std::string error_of(Call call, Exit code = Exit::data) {
  try {
    call();
  } catch (const Error& e) { return (e.code() == code ? "" : "?") + std::string(e.what()); }
  return "";
}

}  // namespace trainer
