// Warps, barriers, atomics, and the orders in which threads run.
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "device_memory.h"
#include "ptx.h"
#include "tests/cuemu/config.h"
#include "tests/cuemu/sanitizers.h"

using namespace trainer::test;

namespace {

constexpr unsigned kWholeWarp = 0xffffffffu;
template <class T>
using DeviceVector = std::vector<T, DeviceAllocator<T>>;

void wait() { REQUIRE(cudaDeviceSynchronize() == cudaSuccess); }

__global__ void shuffles(int width, int lanes, double* out) {
  const int lane = int(threadIdx.x);
  const double value = 100.5 + lane;
  out[lane] = __shfl_sync(kWholeWarp, value, lanes, width);
  out[32 + lane] = __shfl_up_sync(kWholeWarp, value, unsigned(lanes), width);
  out[64 + lane] = __shfl_down_sync(kWholeWarp, value, unsigned(lanes), width);
  out[96 + lane] = __shfl_xor_sync(kWholeWarp, value, lanes, width);
}
__global__ void votes(unsigned set, unsigned* out) {
  const unsigned lane = threadIdx.x;
  const int mine = int(set >> lane & 1);
  out[lane] = __ballot_sync(kWholeWarp, mine);
  out[32 + lane] = unsigned(__any_sync(kWholeWarp, mine)) | unsigned(__all_sync(kWholeWarp, mine)) << 1;
}
// The upper half of each warp leaves; the rest meet at barriers and in collectives of their own.
__global__ void some_leave(int* out) {
  if (threadIdx.x % 32 >= 16) return;
  CU_SHARED(int, places, [64]);
  places[threadIdx.x] = int(threadIdx.x);
  __syncthreads();
  const int other = places[(threadIdx.x + 32) % 64];
  out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, other, 1);
}
__global__ void count(int* total, float* sum) {
  atomicAdd(total, 1);
  atomicAdd(sum, 0.5f);
  atomicMax(total + 1, int(threadIdx.x));
}
// Who comes when: every thread takes a number.
__global__ void numbers(int* next, int* of_thread) { of_thread[threadIdx.x] = atomicAdd(next, 1); }
__global__ void without_barrier(float* out) {
  CU_SHARED(float, values, [64]);
  values[threadIdx.x] = 1;
  out[threadIdx.x] = values[63 - threadIdx.x];
}
__global__ void read_before_wait(const float* in, float* out) {
  float* shared = cu_dyn_shared<float>();
  ptx::cp_async_16(shared, in, true);
  ptx::cp_async_commit();
  out[0] = shared[0];
  ptx::cp_async_wait<0>();
  out[1] = shared[3];
}
__global__ void copies(const float* in, float* out) {
  float* shared = cu_dyn_shared<float>();
  const unsigned i = threadIdx.x;
  for (unsigned stage = 0; stage < 3; ++stage) {
    ptx::cp_async_16(shared + (stage * 32 + i) * 4, in + (stage * 32 + i) * 4, i < 24);
    ptx::cp_async_commit();
  }
  ptx::cp_async_wait<2>();
  __syncthreads();
  out[i] = shared[127 - i];
  ptx::cp_async_wait<0>();
  __syncthreads();
  out[32 + i] = shared[2 * 128 + i];
}

std::vector<int> order_of(cuemu::Schedule schedule) {
  cuemu::set_schedule(schedule);
  DeviceVector<int> next(1), of_thread(64);
  CU_LAUNCH(numbers, dim3(1), dim3(64), 0, nullptr, next.data(), of_thread.data());
  wait();
  return {of_thread.begin(), of_thread.end()};
}

}  // namespace

TEST_CASE("shuffles") {
  const auto [width, lanes] = GENERATE(std::array{32, 1}, std::array{32, 5}, std::array{8, 3}, std::array{16, 17});
  DeviceVector<double> out(128);
  CU_LAUNCH(shuffles, dim3(1), dim3(32), 0, nullptr, width, lanes, out.data());
  wait();
  for (int lane = 0; lane < 32; ++lane) {
    const int begin = lane / width * width, end = begin + width;
    const int up = lane - lanes >= begin ? lane - lanes : lane, down = lane + lanes < end ? lane + lanes : lane;
    const int crossed = (lane ^ lanes) < end ? (lane ^ lanes) : lane;
    INFO("lane " << lane);
    CHECK(out[size_t(lane)] == 100.5 + begin + lanes % width);
    CHECK(out[size_t(32 + lane)] == 100.5 + up);
    CHECK(out[size_t(64 + lane)] == 100.5 + down);
    CHECK(out[size_t(96 + lane)] == 100.5 + crossed);
  }
}

TEST_CASE("votes") {
  const unsigned set = GENERATE(0u, 0x80000001u, 0xffffffffu);
  DeviceVector<unsigned> out(64);
  CU_LAUNCH(votes, dim3(1), dim3(32), 0, nullptr, set, out.data());
  wait();
  const unsigned any_all = (set ? 1 : 0) | (set == 0xffffffffu ? 2 : 0);
  for (size_t lane = 0; lane < 32; ++lane) {
    CHECK(out[lane] == set);
    CHECK(out[32 + lane] == any_all);
  }
}

TEST_CASE("threads that left hold up neither a barrier nor the lanes of other masks") {
  DeviceVector<int> out(64, -1);
  CU_LAUNCH(some_leave, dim3(1), dim3(64), 0, nullptr, out.data());
  wait();
  for (int i = 0; i < 64; ++i) CHECK(out[size_t(i)] == (i % 32 < 16 ? ((i ^ 1) + 32) % 64 : -1));
}

TEST_CASE("atomics of many blocks") {
  DeviceVector<int> total(2);
  DeviceVector<float> sum(1);
  CU_LAUNCH(count, dim3(7, 3, 2), dim3(33), 0, nullptr, total.data(), sum.data());
  wait();
  CHECK(total[0] == 7 * 3 * 2 * 33);
  CHECK(total[1] == 32);
  CHECK(sum[0] == 0.5f * float(total[0]));
}

TEST_CASE("cp.async copies groups in order and fills with zeros") {
  DeviceVector<float> in(384), out(64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = float(i + 1);
  const uint64_t seed = GENERATE(1u, 2u, 3u, 4u);
  cuemu::set_seed(seed);
  CU_LAUNCH(copies, dim3(1), dim3(32), 384 * sizeof(float), nullptr, in.data(), out.data());
  wait();
  for (size_t i = 0; i < 32; ++i) {
    CHECK(out[i] == (127 - i < 24 * 4 ? in[127 - i] : 0));
    CHECK(out[32 + i] == in[256 + i]);
  }
  cuemu::set_seed(1);
}

TEST_CASE("a schedule decides the order of threads, and repeats") {
  using cuemu::Order;
  const std::vector<int> forward = order_of({1, Order::forward}), reverse = order_of({1, Order::reverse});
  for (int i = 0; i < 64; ++i) {
    CHECK(forward[size_t(i)] == i);
    CHECK(reverse[size_t(i)] == 63 - i);
  }
  std::set<std::vector<int>> seen;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    seen.insert(order_of({seed, Order::random}));
    CHECK(order_of({seed, Order::random}) == order_of({seed, Order::random}));
  }
  CHECK(seen.size() == 8);
  cuemu::set_schedule({});
}

TEST_CASE("a missing barrier and a missing wait show under some seed") {
  if (cuemu::kThreadSanitizer) return;  // it would end the program, rightly
  DeviceVector<float> out(64), in(4, 2.0f);
  int early_reads = 0, landed = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    cuemu::set_seed(seed);
    CU_LAUNCH(without_barrier, dim3(1), dim3(64), 0, nullptr, out.data());
    wait();
    for (const float v : out) early_reads += std::isnan(v);
    CU_LAUNCH(read_before_wait, dim3(1), dim3(1), 16, nullptr, in.data(), out.data());
    wait();
    landed += out[0] == 2;
    CHECK(out[1] == 2);
  }
  CHECK(early_reads > 0);
  CHECK(landed > 0);
  CHECK(landed < 10);
  cuemu::set_seed(1);
}
