// Runs one operation on a stream of its own of the CUDA device.
#pragma once
#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>

#include "kernels/cuda/kernels.h"
#include "tests/support/buffer.h"
#include "tests/support/cuda/schedule.h"

namespace trainer::test {

class OneStream final : public Stream {
 public:
  explicit OneStream(size_t scratch_bytes) : bytes_(scratch_bytes) {
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
    if (bytes_) REQUIRE(cudaMalloc(&scratch_, bytes_) == cudaSuccess);
  }
  ~OneStream() override {
    cudaStreamDestroy(stream_);
    cudaFree(scratch_);
  }
  OneStream(const OneStream&) = delete;
  OneStream& operator=(const OneStream&) = delete;
  DeviceKind kind() const override { return DeviceKind::cuda; }
  void* native() override { return stream_; }
  void submit(void (*run)(Stream&, const void*), const void* args, size_t) override { run(*this, args); }
  Event record() override { return {}; }
  void wait(Event) override {}
  std::span<std::byte> scratch() override { return {static_cast<std::byte*>(scratch_), bytes_}; }
  void finish() {
    REQUIRE(cudaGetLastError() == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream_) == cudaSuccess);
  }

 private:
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  size_t bytes_;
};

// What a kernel cannot look at before it runs: tokens and positions in device memory.
inline constexpr bool kIdsAreChecked = false;

// Launches `op` and waits for it. The lane's scratch is exactly what the kernel asks for. A CPU's number of threads
// means nothing here.
template <class Op>
void run_op(const Op& op, int /*threads*/ = 0) {
  size_t bytes = 0;
  if constexpr (requires { cuda::scratch_bytes(op); }) bytes = cuda::scratch_bytes(op);
  OneStream stream(bytes);
  cuda::run(stream, op);
  stream.finish();
}

// Three times, each from the same beginning: what is written to `outputs` must not differ in a bit. The emulated device
// takes another order of threads each time.
template <class Op>
void run_with_any_threads(const Op& op, std::initializer_list<Buffer*> outputs) {
  std::vector<std::vector<std::byte>> before, wanted;
  for (Buffer* b : outputs) before.push_back(b->bytes());
  for (int run = 0; run < 3; ++run) {
    size_t i = 0;
    for (Buffer* b : outputs) b->restore(before[i++]);
    test_schedule(run);
    run_op(op);
    i = 0;
    for (Buffer* b : outputs) {
      if (run == 0) wanted.push_back(b->bytes());
      INFO("output " << i << " of run " << run);
      REQUIRE(b->bytes() == wanted[i++]);
    }
  }
  test_schedule(0);
}

}  // namespace trainer::test
