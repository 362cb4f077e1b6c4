// What the thread sanitizer finds through the emulated device: accesses that nothing orders, whether or not their order
// changed a result. In other builds there is nothing to look at.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <vector>

#include "device_memory.h"
#include "in_child.h"
#include "ptx.h"
#include "tests/cuemu/sanitizers.h"

using namespace trainer::test;
using Catch::Matchers::Contains;

namespace {

using Ints = std::vector<int, DeviceAllocator<int>>;
constexpr unsigned kWholeWarp = 0xffffffffu;

__global__ void barrier_or_not(int* out, bool barrier) {
  CU_SHARED(int, values, [64]);
  values[threadIdx.x] = 1;
  if (barrier) __syncthreads();
  out[threadIdx.x] = values[63 - threadIdx.x];
}
// Lanes of one warp: a shuffle orders no memory, __syncwarp does.
__global__ void warp_order(int* out, bool syncwarp) {
  CU_SHARED(int, values, [32]);
  values[threadIdx.x] = 1;
  if (syncwarp) __syncwarp();
  else __shfl_sync(kWholeWarp, 1, 0);
  out[threadIdx.x] = values[31 - threadIdx.x];
}
__global__ void count(int* total, bool atomic) {
  if (atomic) atomicAdd(total, 1);
  else *total += 1;
}

void two_streams(bool event) {
  Ints x(1);
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t done = nullptr;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaEventCreate(&done);
  CU_LAUNCH(count, dim3(1), dim3(1), 0, a, x.data(), false);
  cudaEventRecord(done, a);
  if (event) cudaStreamWaitEvent(b, done, 0);
  CU_LAUNCH(count, dim3(1), dim3(1), 0, b, x.data(), false);
  cudaDeviceSynchronize();
}

bool right() { return std::getenv("TEST_IS_ORDERED") != nullptr; }

}  // namespace

TEST_CASE("race in a block", "[.]") {
  Ints out(64);
  CU_LAUNCH(barrier_or_not, dim3(1), dim3(64), 0, nullptr, out.data(), right());
  cudaDeviceSynchronize();
}
TEST_CASE("race in a warp", "[.]") {
  Ints out(32);
  CU_LAUNCH(warp_order, dim3(1), dim3(32), 0, nullptr, out.data(), right());
  cudaDeviceSynchronize();
}
TEST_CASE("race between blocks", "[.]") {
  Ints total(1);
  CU_LAUNCH(count, dim3(4), dim3(1), 0, nullptr, total.data(), right());
  cudaDeviceSynchronize();
}
TEST_CASE("race between streams", "[.]") { two_streams(right()); }
TEST_CASE("race with the host", "[.]") {
  Ints total(1);
  CU_LAUNCH(count, dim3(1), dim3(1), 0, nullptr, total.data(), false);
  if (right()) cudaDeviceSynchronize();
  ++total[0];
  cudaDeviceSynchronize();
}

TEST_CASE("the thread sanitizer sees what orders accesses, and what does not") {
  if (!cuemu::kThreadSanitizer) return;
  for (const char* race :
       {"race in a block", "race in a warp", "race between blocks", "race between streams", "race with the host"}) {
    INFO(race);
    CHECK_THAT(run_hidden(race).message, Contains("data race"));
    const Setting ordered("TEST_IS_ORDERED", "1");
    const End end = run_hidden(race);
    CHECK(end.message.empty());
    CHECK(end.code == 0);
  }
}
