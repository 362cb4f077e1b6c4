// The algorithms that were found by timing, and their text: one line each, sorted (kernels/cuda/algorithms.h).
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/matmul_problem.h"

namespace trainer::cuda {

struct AlgorithmKey {
  std::string gpu;
  size_t version = 0;  // cublasLtGetVersion
  std::string problem;
  auto operator<=>(const AlgorithmKey&) const = default;
};

// Threads may share one: ranks that are threads of a test do.
class MatmulAlgorithms {
 public:
  struct Entry {
    MatmulAlgorithm algorithm;
    std::string origin;  // "file:line", for messages; empty: found by this process
  };
  std::optional<Entry> find(const AlgorithmKey&) const;
  void put(const AlgorithmKey&, const MatmulAlgorithm&);
  // Grows with every change: what was chosen under another number is chosen again.
  uint64_t version() const;

  void set(std::string_view text, const std::string& origin);
  void add(std::string_view text);
  std::string text() const;
  std::string found_text() const;
  // "NVIDIA A100 with cuBLASLt 130000", whose the first line is, where none is of this GPU and version; else empty.
  std::string foreign_to(const std::string& gpu, size_t version) const;

 private:
  using Entries = std::map<AlgorithmKey, Entry>;
  static Entries parse(std::string_view text, const std::string& origin);
  mutable std::mutex mutex_;
  Entries entries_;
  uint64_t version_ = 0;
};

}  // namespace trainer::cuda
