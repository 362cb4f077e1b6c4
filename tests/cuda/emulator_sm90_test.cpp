// The instructions of sm_90: tiles that come by themselves and are counted by mbarriers, and products of warp groups.
#include <cuda.h>

#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "device_memory.h"
#include "in_child.h"
#include "ptx_sm90.h"
#include "tests/cuemu/config.h"
#include "tests/cuemu/stats.h"

using namespace trainer::test;
using Catch::Matchers::Contains;

namespace {

using Bf16 = __nv_bfloat16;
template <class T>
using DeviceVector = std::vector<T, DeviceAllocator<T>>;

CUtensorMap map_of(const Bf16* data, std::vector<cuuint64_t> size, std::vector<cuuint32_t> box, CUtensorMapSwizzle s) {
  void* function = nullptr;
  REQUIRE(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, nullptr) ==
          cudaSuccess);
  std::vector<cuuint64_t> strides(1, size[0] * sizeof(Bf16));
  for (size_t d = 1; d + 1 < size.size(); ++d) strides.push_back(strides.back() * size[d]);
  const std::vector<cuuint32_t> ones(size.size(), 1);
  CUtensorMap map;
  REQUIRE(reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
              &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, cuuint32_t(size.size()), const_cast<Bf16*>(data), size.data(),
              strides.data(), box.data(), ones.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, s,
              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return map;
}
__device__ char* aligned_shared() {
  constexpr uintptr_t kPeriod = 1024;  // of the swizzle
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(cu_dyn_shared<char>()) + kPeriod - 1) / kPeriod *
                                 kPeriod);
}
constexpr unsigned kTileBytes = 64 * 128;

__global__ void load_tile(const __grid_constant__ CUtensorMap map, int x, int y, int z, Bf16* out, int elements) {
  char* tile = aligned_shared();
  CU_SHARED(uint64_t, barrier, [1]);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect(barrier, unsigned(elements) * 2);
    ptx::tile_load_3d(tile, &map, barrier, x, y, z);
  }
  ptx::mbarrier_wait(barrier, 0);
  for (int i = int(threadIdx.x); i < elements; i += 32) out[i] = reinterpret_cast<const Bf16*>(tile)[i];
}

// d[64 x N] = a[64 x 64] b[64 x N]. As the tensor cores take them: a by rows (or by columns), b by columns (or by
// rows).
template <int N, bool kTransposeA, bool kTransposeB, bool kARegisters>
__global__ void multiply(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                         const Bf16* a_rows, float* d) {
  char *a = aligned_shared(), *b = a + kTileBytes;
  CU_SHARED(uint64_t, barrier, [1]);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect(barrier, kTileBytes + N / 64 * kTileBytes);
    ptx::tile_load_2d(a, &map_a, barrier, 0, 0);
    for (int i = 0; i < N / 64; ++i)
      ptx::tile_load_2d(b + i * int(kTileBytes), &map_b, barrier, kTransposeB ? 64 * i : 0, kTransposeB ? 0 : 64 * i);
  }
  ptx::mbarrier_wait(barrier, 0);
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, row = warp * 16 + lane / 4;
  float sums[N / 2];
  ptx::wgmma_fence();
  for (int k = 0; k < 64; k += 16) {
    // 16 k further: 32 bytes along a row, or 16 rows of 128 bytes.
    const uint64_t db = ptx::wgmma_descriptor(b + (kTransposeB ? k * 128 : k * 2), kTileBytes, 1024);
    if constexpr (kARegisters) {
      uint32_t registers[4];
      for (int r = 0; r < 4; ++r)
        memcpy(&registers[r], a_rows + (row + r % 2 * 8) * 64 + k + r / 2 * 8 + lane % 4 * 2, 4);
      ptx::wgmma_bf16<N, kTransposeB>(sums, registers, db, k > 0);
    } else {
      const uint64_t da = ptx::wgmma_descriptor(a + (kTransposeA ? k * 128 : k * 2), kTileBytes, 1024);
      ptx::wgmma_bf16<N, kTransposeA, kTransposeB>(sums, da, db, k > 0);
    }
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  for (int i = 0; i < N / 2; ++i) {
    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    d[(row + i / 2 % 2 * 8) * N + column] = sums[i];
  }
}

template <int N, bool kTransposeA, bool kTransposeB, bool kARegisters>
void check_product() {
  INFO("N " << N << " transposed " << kTransposeA << kTransposeB << " registers " << kARegisters);
  DeviceVector<Bf16> a(64 * 64), b(64 * size_t(N));
  DeviceVector<float> d(64 * size_t(N));
  const auto value = [](size_t i, size_t j) { return float(int((i * 29 + j * 53) % 17) - 8); };
  for (size_t m = 0; m < 64; ++m)
    for (size_t k = 0; k < 64; ++k) a[kTransposeA ? k * 64 + m : m * 64 + k] = __float2bfloat16(value(m, k));
  for (size_t k = 0; k < 64; ++k)
    for (size_t n = 0; n < N; ++n) b[kTransposeB ? k * N + n : n * 64 + k] = __float2bfloat16(value(k + 3, n));
  const auto map_a = map_of(a.data(), {64, 64}, {64, 64}, CU_TENSOR_MAP_SWIZZLE_128B);
  const auto map_b = kTransposeB ? map_of(b.data(), {N, 64}, {64, 64}, CU_TENSOR_MAP_SWIZZLE_128B)
                                 : map_of(b.data(), {64, N}, {64, 64}, CU_TENSOR_MAP_SWIZZLE_128B);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    cuemu::set_seed(seed);
    const auto kernel = multiply<N, kTransposeA, kTransposeB, kARegisters>;
    CU_LAUNCH(kernel, dim3(1), dim3(128), 1024 + (1 + N / 64) * kTileBytes, nullptr, map_a, map_b,
              static_cast<const Bf16*>(a.data()), d.data());
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    int wrong = 0;
    for (size_t m = 0; m < 64; ++m)
      for (size_t n = 0; n < N; ++n) {
        float sum = 0;
        for (size_t k = 0; k < 64; ++k) sum += value(m, k) * value(k + 3, n);
        wrong += d[m * N + n] != sum;
      }
    CHECK(wrong == 0);
  }
  cuemu::set_seed(1);
}

// Four matrices of 8 rows from fragments, `stride` bytes from row to row; out gets the rows.
__global__ void store_matrices(const uint16_t* fragments, int stride, uint16_t* out) {
  const int lane = int(threadIdx.x);
  char* shared = cu_dyn_shared<char>();
  uint32_t r[4];
  memcpy(r, fragments + lane * 8, sizeof r);
  ptx::stmatrix_x4(shared + lane * stride, r);
  __syncwarp();
  memcpy(out + lane * 8, shared + lane * stride, 16);
}

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
  ptx::tile_load_2d(cu_dyn_shared<char>(), out, cu_dyn_shared<uint64_t>(), 0, 0);
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

// A tile of ones becomes one of twos between a product of it and the wait.
__global__ void tile_changes(float* out) {
  auto* tile = reinterpret_cast<Bf16*>(aligned_shared());
  const auto fill = [&](float x) {
    for (int i = int(threadIdx.x); i < 64 * 64; i += 128) tile[i] = __float2bfloat16(x);
    ptx::async_proxy_fence();
    __syncthreads();
  };
  fill(1);
  float sums[32];
  const uint64_t ones = ptx::wgmma_descriptor(tile, 16, 1024);
  ptx::wgmma_fence();
  ptx::wgmma_bf16<64>(sums, ones, ones, false);
  ptx::wgmma_commit();
  __syncthreads();
  fill(2);
  ptx::wgmma_wait<0>();
  out[threadIdx.x] = sums[0];
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

TEST_CASE("a tile of a tensor, with zeros outside of it") {
  DeviceVector<Bf16> in(2 * 5 * 24), out(2 * 4 * 16);  // a tile of 16 x 4 x 2
  for (size_t i = 0; i < in.size(); ++i) in[i] = __float2bfloat16(float(i + 1));
  const auto [x, y, z] =
      GENERATE(std::array{0, 0, 0}, std::array{8, 1, 0}, std::array{16, 3, 1}, std::array{-8, -2, 1});
  const CUtensorMap map = map_of(in.data(), {24, 5, 2}, {16, 4, 2}, CU_TENSOR_MAP_SWIZZLE_NONE);
  CU_LAUNCH(load_tile, dim3(1), dim3(32), 4096, nullptr, map, x, y, z, out.data(), int(out.size()));
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  for (int i = 0; i < int(out.size()); ++i) {
    const int u = x + i % 16, v = y + i / 16 % 4, w = z + i / 64;
    const bool inside = u >= 0 && u < 24 && v >= 0 && v < 5 && w < 2;
    INFO("element " << i);
    CHECK(__bfloat162float(out[size_t(i)]) == (inside ? float((w * 5 + v) * 24 + u + 1) : 0));
  }
}

TEST_CASE("the 128-byte swizzle exchanges 16-byte pieces of a row by its number") {
  DeviceVector<Bf16> in(16 * 64), out(16 * 64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = __float2bfloat16(float(i / 8));
  const CUtensorMap map = map_of(in.data(), {64, 16, 1}, {64, 16, 1}, CU_TENSOR_MAP_SWIZZLE_128B);
  CU_LAUNCH(load_tile, dim3(1), dim3(32), 4096, nullptr, map, 0, 0, 0, out.data(), int(out.size()));
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  for (size_t row = 0; row < 16; ++row)
    for (size_t piece = 0; piece < 8; ++piece)
      CHECK(__bfloat162float(out[row * 64 + (piece ^ row % 8) * 8]) == float(row * 8 + piece));
}

TEST_CASE("products of a warp group") {
  check_product<64, false, false, false>();
  check_product<128, false, false, false>();
  check_product<128, false, true, false>();
  check_product<64, true, false, false>();
  check_product<64, true, true, false>();
  check_product<64, false, true, true>();
  check_product<128, false, false, true>();
}

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
  check_fails(no_map, 1, "[tensor map]", "is no map of a tensor with 2 dimensions");
  check_fails(one_wgmma<false, true>, 128, "[wgmma]", "no wgmma.fence");
  check_fails(one_wgmma<true, false>, 128, "[wgmma]", "the thread exits with 1 wgmma that it never waited for");
  check_fails(one_wgmma<true, true>, 96, "[wgmma]", "fewer than four warps");
}

TEST_CASE("a product reads its tiles when it is issued, or as late as the wait for it") {
  DeviceVector<float> out(128);
  bool early = false, late = false;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    cuemu::set_seed(seed);
    CU_LAUNCH(tile_changes, dim3(1), dim3(128), 1024 + kTileBytes, nullptr, out.data());
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    for (float x : out) {
      REQUIRE((x == 16 || x == 64));
      (x == 16 ? early : late) = true;
    }
  }
  cuemu::set_seed(1);
  CHECK(early);
  CHECK(late);
}

TEST_CASE("stmatrix takes from each lane two neighbours of a row") {
  const bool conflicts = GENERATE(false, true);
  DeviceVector<uint16_t> rows(32 * 8), fragments(32 * 8), out(32 * 8);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = uint16_t(i * 7);
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t matrix = 0; matrix < 4; ++matrix)
      for (size_t half = 0; half < 2; ++half)
        fragments[lane * 8 + matrix * 2 + half] = rows[(matrix * 8 + lane / 4) * 8 + lane % 4 * 2 + half];
  const int stride = conflicts ? 128 : 16;  // 128 bytes are all the banks
  const cuemu::Stats before = cuemu::stats();
  CU_LAUNCH(store_matrices, dim3(1), dim3(32), size_t(32 * stride), nullptr, fragments.data(), stride, out.data());
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(out == rows);
  CHECK(cuemu::stats().stm - before.stm == 4);
  CHECK(cuemu::stats().stm_conflict_ways - before.stm_conflict_ways == (conflicts ? 4 * 7 : 0));
}
