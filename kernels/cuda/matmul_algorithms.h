// The algorithms that were found by timing, and their file: one line each, sorted,
//   GPU | version of cuBLASLt | problem | bytes of workspace | cublasLtMatmulAlgo_t in hexadecimal
// An algorithm may be stored and used again with the same version of the library (cublasLt.h), on the same GPU.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>

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
    std::string origin;  // "file:line", for messages; empty: found in this run
  };
  std::optional<Entry> find(const AlgorithmKey&) const;
  void put(const AlgorithmKey&, const MatmulAlgorithm&);
  // Grows with every change: what was chosen under another number is chosen again.
  uint64_t version() const;

  bool load(const std::string& path);
  void save(const std::string& path) const;

 private:
  mutable std::mutex mutex_;
  std::map<AlgorithmKey, Entry> entries_;
  uint64_t version_ = 0;
};

}  // namespace trainer::cuda
