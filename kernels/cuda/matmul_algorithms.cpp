#include "kernels/cuda/matmul_algorithms.h"

#include <algorithm>
#include <charconv>
#include <cstring>
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
std::string parse_line(std::string_view line, AlgorithmKey& key, MatmulAlgorithm& algorithm) {
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

template <class Entries>
std::string lines_of(const Entries& entries) {
  std::string text = fmt::format("{}\n# {}\n", kTitle, kColumns);
  for (const auto& [key, entry] : entries)
    text += fmt::format("{} | {} | {} | {} | {}\n", key.gpu, key.version, key.problem, entry.algorithm.workspace,
                        hexadecimal(entry.algorithm.algorithm));
  return text;
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

MatmulAlgorithms::Entries MatmulAlgorithms::parse(std::string_view text, const std::string& origin) {
  Entries entries;
  size_t number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (++number == 1)
      check(line == kTitle, Exit::spec, "{}:1: not a file of matmul algorithms: wanted the line '{}'", origin, kTitle);
    if (line.empty() || line[0] == '#') continue;
    AlgorithmKey key;
    Entry entry{{}, fmt::format("{}:{}", origin, number)};
    const std::string wrong = parse_line(line, key, entry.algorithm);
    check(wrong.empty(), Exit::spec, "{}: {}; correct the line, or remove it to search again", entry.origin, wrong);
    const auto [first, fresh] = entries.emplace(key, entry);
    check(fresh, Exit::spec, "{}: the same problem as in {}; remove one", entry.origin, first->second.origin);
  }
  return entries;
}

void MatmulAlgorithms::set(std::string_view text, const std::string& origin) {
  Entries entries = parse(text, origin);
  const std::lock_guard lock(mutex_);
  entries_ = std::move(entries);
  ++version_;
}

void MatmulAlgorithms::add(std::string_view text) {
  const Entries added = parse(text, "what another rank found");
  const std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : added) entries_[key] = entry;
  version_ += !added.empty();
}

std::string MatmulAlgorithms::text() const {
  const std::lock_guard lock(mutex_);
  return lines_of(entries_);
}

std::string MatmulAlgorithms::found_text() const {
  const std::lock_guard lock(mutex_);
  Entries found;
  for (const auto& [key, entry] : entries_)
    if (entry.origin.empty()) found.emplace(key, entry);
  return found.empty() ? "" : lines_of(found);
}

std::string MatmulAlgorithms::foreign_to(const std::string& gpu, size_t version) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : entries_)
    if (key.gpu == gpu && key.version == version) return "";
  if (entries_.empty()) return "";
  const AlgorithmKey& first = entries_.begin()->first;
  return fmt::format("{} with cuBLASLt {}", first.gpu, first.version);
}

}  // namespace trainer::cuda
