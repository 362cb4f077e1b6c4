// What the emulated device allows sm_90's instructions to do, and what it refuses: copies and products read and write
// when they like, mbarriers count them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "device_memory.h"
#include "in_child.h"
#include "ptx_sm90.h"
#include "tests/cuemu/config.h"

using namespace trainer::test;
using Catch::Matchers::Contains;

namespace {

using Bf16 = __nv_bfloat16;
template <class T>
using DeviceVector = std::vector<T, DeviceAllocator<T>>;

__device__ char* aligned_shared() {
  constexpr uintptr_t kPeriod = 1024;  // of the swizzle
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(cu_dyn_shared<char>()) + kPeriod - 1) / kPeriod *
                                 kPeriod);
}
constexpr unsigned kTileBytes = 64 * 128;

// One thread fills a ring of two places, the others empty it.
__global__ void ring(const int* in, int* out, int tiles) {
  constexpr int kStages = 2, kInts = 32;
  int* places = cu_dyn_shared<int>();
  CU_SHARED(uint64_t, full, [kStages]);
  CU_SHARED(uint64_t, empty, [kStages]);
  if (threadIdx.x == 0)
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], kInts);
    }
  __syncthreads();
  if (threadIdx.x >= kInts) {
    if (threadIdx.x > kInts) return;
    for (int i = 0; i < tiles; ++i) {
      const int stage = i % kStages, round = i / kStages;
      if (round > 0) ptx::mbarrier_wait(&empty[stage], unsigned(round - 1) % 2);
      ptx::mbarrier_arrive_expect(&full[stage], kInts * 4);
      ptx::bulk_load(places + stage * kInts, in + i * kInts, kInts * 4, &full[stage]);
    }
    return;
  }
  int sum = 0;
  for (int i = 0; i < tiles; ++i) {
    const int stage = i % kStages;
    ptx::mbarrier_wait(&full[stage], unsigned(i / kStages) % 2);
    sum += places[stage * kInts + int(threadIdx.x)] * (i + 1);
    ptx::mbarrier_arrive(&empty[stage]);
  }
  out[threadIdx.x] = sum;
}

__global__ void never_initialized(int*) { ptx::mbarrier_arrive(cu_dyn_shared<uint64_t>()); }
__global__ void arrives_twice(int* out) {
  ptx::mbarrier_init(cu_dyn_shared<uint64_t>(), 1);
  ptx::mbarrier_arrive_expect(cu_dyn_shared<uint64_t>(), out ? 16 : 0);
  ptx::mbarrier_arrive(cu_dyn_shared<uint64_t>());
}
__global__ void waits_for_nobody(int*) {
  ptx::mbarrier_init(cu_dyn_shared<uint64_t>(), 1);
  ptx::mbarrier_wait(cu_dyn_shared<uint64_t>(), 0);
}
__global__ void bulk_misaligned(int* out) {
  ptx::mbarrier_init(cu_dyn_shared<uint64_t>(), 1);
  ptx::bulk_load(cu_dyn_shared<char>() + 16, out + 1, 16, cu_dyn_shared<uint64_t>());
}
__global__ void bulk_forgotten(int* out) {
  ptx::mbarrier_init(cu_dyn_shared<uint64_t>(), 1);
  ptx::bulk_load(cu_dyn_shared<char>() + 16, out, 16, cu_dyn_shared<uint64_t>());
}
__global__ void no_map(int* out) {
  ptx::mbarrier_init(cu_dyn_shared<uint64_t>(), 1);
  ptx::tile_load_4d(cu_dyn_shared<char>(), out, cu_dyn_shared<uint64_t>(), 0, 0, 0, 0);
}
template <bool kFence, bool kWait>
__global__ void one_wgmma(int*) {
  float sums[32] = {};
  const uint64_t tile = ptx::wgmma_descriptor(aligned_shared(), kTileBytes, 1024);
  if (kFence) ptx::wgmma_fence();
  ptx::wgmma_bf16<64>(sums, tile, tile, false);
  ptx::wgmma_commit();
  if (kWait) ptx::wgmma_wait<0>();
}

// Ones of the left operand's registers, or of a tile that both operands are, become twos between a product and the
// wait.
template <bool kInRegisters>
__global__ void ones_change(float* out) {
  constexpr uint32_t kOnes = 0x3f803f80, kTwos = 0x40004000;
  auto* tile = reinterpret_cast<Bf16*>(aligned_shared());
  const auto fill = [&](float x) {
    for (int i = int(threadIdx.x); i < 64 * 64; i += 128) tile[i] = __float2bfloat16(x);
    __syncthreads();
  };
  fill(1);
  float sums[32];
  uint32_t left[4] = {kOnes, kOnes, kOnes, kOnes};
  const uint64_t ones = ptx::wgmma_descriptor(tile, 16, 1024);
  ptx::wgmma_fence();
  if constexpr (kInRegisters) ptx::wgmma_bf16<64>(sums, left, ones, false);
  else ptx::wgmma_bf16<64>(sums, ones, ones, false);
  ptx::wgmma_commit();
  __syncthreads();
  if (kInRegisters) std::fill_n(left, 4, kTwos);
  else fill(2);
  ptx::wgmma_wait<0>();
  out[threadIdx.x] = sums[0];
}

// Sums of 16 products of ones, or of what they became.
void check_early_and_late(void (*kernel)(float*), float early_sum, float late_sum) {
  DeviceVector<float> out(128);
  bool early = false, late = false;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    cuemu::set_seed(seed);
    CU_LAUNCH(kernel, dim3(1), dim3(128), 1024 + kTileBytes, nullptr, out.data());
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    for (float x : out) {
      REQUIRE((x == early_sum || x == late_sum));
      (x == early_sum ? early : late) = true;
    }
  }
  cuemu::set_seed(1);
  CHECK(early);
  CHECK(late);
}

void check_fails(void (*kernel)(int*), unsigned threads, const char* kind, const char* text) {
  const End end = in_child([=] {
    cuemu::set_schedule({1, cuemu::Order::forward});
    int* memory = nullptr;
    cudaMalloc(reinterpret_cast<void**>(&memory), 4096);
    CU_LAUNCH(kernel, dim3(1), dim3(threads), 16 << 10, nullptr, memory);
    cudaDeviceSynchronize();
  });
  CHECK(end.code == 66);
  CHECK_THAT(end.message, Contains(kind) && Contains(text));
}

}  // namespace

TEST_CASE("a ring of bulk copies gives the same under every order") {
  constexpr int kTiles = 7;
  DeviceVector<int> in(kTiles * 32), out(32);
  for (size_t i = 0; i < in.size(); ++i) in[i] = int(i * i % 101);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    cuemu::set_seed(seed);
    CU_LAUNCH(ring, dim3(1), dim3(64), 256, nullptr, static_cast<const int*>(in.data()), out.data(), kTiles);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    for (size_t j = 0; j < 32; ++j) {
      int sum = 0;
      for (size_t i = 0; i < kTiles; ++i) sum += in[i * 32 + j] * int(i + 1);
      CHECK(out[j] == sum);
    }
  }
  cuemu::set_seed(1);
}

TEST_CASE("what breaks the rules of sm_90's instructions") {
  check_fails(never_initialized, 1, "[mbarrier]", "was never initialized");
  check_fails(arrives_twice, 1, "[mbarrier]", "more arrivals than the 1 of a phase");
  check_fails(waits_for_nobody, 1, "[deadlock]", "in the wait for an mbarrier");
  check_fails(bulk_misaligned, 1, "[align]", "not aligned to 16");
  check_fails(bulk_forgotten, 1, "[bulk]", "the block ends before 1 of its bulk copies");
  check_fails(no_map, 1, "[tensor map]", "is no map of a tensor with 4 dimensions");
  check_fails(one_wgmma<false, true>, 128, "[wgmma]", "no wgmma.fence");
  check_fails(one_wgmma<true, false>, 128, "[wgmma]", "the thread exits with 1 wgmma that it never waited for");
  check_fails(one_wgmma<true, true>, 96, "[wgmma]", "fewer than four warps");
}

TEST_CASE("a product reads its tiles and registers when it is issued, or as late as the wait for it") {
  check_early_and_late(ones_change<false>, 16, 64);
  check_early_and_late(ones_change<true>, 16, 32);
}
