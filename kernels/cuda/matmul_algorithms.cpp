#include "kernels/cuda/matmul_algorithms.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "kernels/cuda/matmul.h"

namespace trainer::cuda {
namespace {

constexpr std::string_view kTitle = "# trainer: algorithms of matrix products, 1";
constexpr std::string_view kColumns = "GPU | cuBLASLt | problem | workspace | algorithm";
constexpr size_t kBytes = sizeof(cublasLtMatmulAlgo_t);
static_assert(kBytes == 64);

std::vector<std::string_view> split(std::string_view line) {
  constexpr std::string_view kBetween = " | ";
  std::vector<std::string_view> fields;
  while (true) {
    const size_t at = line.find(kBetween);
    fields.push_back(line.substr(0, at));
    if (at == std::string_view::npos) return fields;
    line.remove_prefix(at + kBetween.size());
  }
}

bool read(std::string_view text, size_t& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

std::string hexadecimal(const cublasLtMatmulAlgo_t& a) {
  unsigned char bytes[kBytes];
  std::memcpy(bytes, &a, kBytes);
  std::string text;
  for (unsigned char b : bytes) text += fmt::format("{:02x}", b);
  return text;
}
bool read(std::string_view text, cublasLtMatmulAlgo_t& a) {
  if (text.size() != 2 * kBytes) return false;
  unsigned char bytes[kBytes];
  for (size_t i = 0; i < kBytes; ++i) {
    size_t value = 0;
    if (!read(text.substr(2 * i, 2), value, 16)) return false;
    bytes[i] = static_cast<unsigned char>(value);
  }
  std::memcpy(&a, bytes, kBytes);
  return true;
}

// What is wrong with the line; empty: nothing.
std::string parse(std::string_view line, AlgorithmKey& key, MatmulAlgorithm& algorithm) {
  const std::vector<std::string_view> fields = split(line);
  if (fields.size() != 5) return fmt::format("wanted '{}', found {} columns", kColumns, fields.size());
  key.gpu = fields[0];
  key.problem = fields[2];
  if (key.gpu.empty() || key.problem.empty()) return "the GPU or the problem is empty";
  if (!read(fields[1], key.version)) return fmt::format("wanted a version of cuBLASLt, found '{}'", fields[1]);
  if (!read(fields[3], algorithm.workspace) || algorithm.workspace > kMostWorkspace)
    return fmt::format("wanted a workspace of at most {} bytes, found '{}'", kMostWorkspace, fields[3]);
  if (!read(fields[4], algorithm.algorithm))
    return fmt::format("wanted an algorithm of {} hexadecimal digits, found '{}'", 2 * kBytes, fields[4]);
  return "";
}

}  // namespace

std::optional<MatmulAlgorithms::Entry> MatmulAlgorithms::find(const AlgorithmKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  return it == entries_.end() ? std::nullopt : std::optional(it->second);
}

void MatmulAlgorithms::put(const AlgorithmKey& key, const MatmulAlgorithm& algorithm) {
  const std::lock_guard lock(mutex_);
  entries_[key] = {algorithm, ""};
  ++version_;
}

uint64_t MatmulAlgorithms::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

bool MatmulAlgorithms::load(const std::string& path) {
  std::map<AlgorithmKey, Entry> read;
  const bool exists = std::filesystem::exists(path);
  if (exists) {
    std::ifstream file(path);
    std::string line;
    check(bool(std::getline(file, line)) && line == kTitle, Exit::spec,
          "{}:1: not a file of matmul algorithms: wanted the line '{}'", path, kTitle);
    for (int number = 2; std::getline(file, line); ++number) {
      if (line.empty() || line[0] == '#') continue;
      AlgorithmKey key;
      Entry entry{{}, fmt::format("{}:{}", path, number)};
      const std::string wrong = parse(line, key, entry.algorithm);
      check(wrong.empty(), Exit::spec, "{}: {}; correct the line, or remove it to search again", entry.origin, wrong);
      const auto [first, fresh] = read.emplace(key, entry);
      check(fresh, Exit::spec, "{}: the same problem as in {}; remove one", entry.origin, first->second.origin);
    }
    check(file.eof(), Exit::spec, "{}: cannot be read: {}", path, std::strerror(errno));
  }
  const std::lock_guard lock(mutex_);
  entries_ = std::move(read);
  ++version_;
  return exists;
}

void MatmulAlgorithms::save(const std::string& path) const {
  std::string text = fmt::format("{}\n# {}\n", kTitle, kColumns);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, entry] : entries_)
      text += fmt::format("{} | {} | {} | {} | {}\n", key.gpu, key.version, key.problem, entry.algorithm.workspace,
                          hexadecimal(entry.algorithm.algorithm));
  }
  const std::string fresh = fmt::format("{}.{}", path, getpid());  // renamed when whole
  std::ofstream file(fresh);
  file << text << std::flush;
  const bool written = file.good() && std::rename(fresh.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (!written) std::remove(fresh.c_str());
  check(written, Exit::spec, "device.heuristics: cannot write {}: {}", path, std::strerror(error));
}

}  // namespace trainer::cuda
