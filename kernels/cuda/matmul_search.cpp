#include "kernels/cuda/matmul_search.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>

#include "core/base/error.h"

namespace trainer::cuda {
namespace {

constexpr int kCandidates = 8;
constexpr int kRounds = 6;  // the first warms up
constexpr float kNever = std::numeric_limits<float>::max();

void check_cuda(cudaError_t error) {
  check(error == cudaSuccess, Exit::device, "[cuda] timing a matrix product failed: {}", cudaGetErrorString(error));
}

class Timer {
 public:
  explicit Timer(cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaEventCreateWithFlags(&begin_, cudaEventDefault));
    check_cuda(cudaEventCreateWithFlags(&end_, cudaEventDefault));
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void start() { check_cuda(cudaEventRecord(begin_, stream_)); }
  float stop() {
    float milliseconds = 0;
    check_cuda(cudaEventRecord(end_, stream_));
    check_cuda(cudaEventSynchronize(end_));
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

MatmulAlgorithm fastest(cublasLtHandle_t handle, const MatmulDescriptors& descriptors, const MatMul& op,
                        void* workspace, cudaStream_t stream) {
  const auto candidates = descriptors.candidates(handle, op, kCandidates);
  std::vector<float> shortest(candidates.size(), kNever);
  Timer timer(stream);
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < candidates.size(); ++i) {
      timer.start();
      const cublasStatus_t status = descriptors.multiply(handle, op, candidates[i], workspace, stream);
      const float milliseconds = timer.stop();
      if (round > 0 && status == CUBLAS_STATUS_SUCCESS) shortest[i] = std::min(shortest[i], milliseconds);
    }
  const auto best = std::min_element(shortest.begin(), shortest.end());
  check(best != shortest.end() && *best < kNever, Exit::device, "matmul: no algorithm that cuBLASLt suggests runs");
  return candidates[size_t(best - shortest.begin())];
}

}  // namespace trainer::cuda
