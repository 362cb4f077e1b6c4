#include "kernels/cuda/matmul_search.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "kernels/cuda/cuda_stopwatch.h"

namespace trainer::cuda {
namespace {

constexpr int kCandidates = 8;
constexpr int kRounds = 6;  // the first warms up
constexpr double kNever = std::numeric_limits<double>::max();

}  // namespace

MatmulAlgorithm fastest(cublasLtHandle_t handle, const MatmulDescriptors& descriptors, const MatMul& op,
                        void* workspace, cudaStream_t stream) {
  const auto candidates = descriptors.candidates(handle, op, kCandidates);
  std::vector<double> shortest(candidates.size(), kNever);
  CudaStopwatch watch(stream);
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < candidates.size(); ++i) {
      watch.start();
      const cublasStatus_t status = descriptors.multiply(handle, op, candidates[i], workspace, stream);
      const double seconds = watch.stop();
      if (round > 0 && status == CUBLAS_STATUS_SUCCESS) shortest[i] = std::min(shortest[i], seconds);
    }
  const auto best = std::min_element(shortest.begin(), shortest.end());
  check(best != shortest.end() && *best < kNever, Exit::device, "matmul: no algorithm that cuBLASLt suggests runs");
  return candidates[size_t(best - shortest.begin())];
}

}  // namespace trainer::cuda
