// What sm_90a's instructions do with tiles: bulk copies swizzle them, warp groups multiply and store them. After
// "Tensor copies", "Asynchronous Warpgroup Level Matrix Instructions" and "stmatrix" of the PTX ISA.
#include <cuda.h>

#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "device_memory.h"
#include "ptx_sm90.h"
#include "tests/support/cuda/schedule.h"

using namespace trainer::test;

namespace {

using Bf16 = __nv_bfloat16;
template <class T>
using DeviceVector = std::vector<T, DeviceAllocator<T>>;

bool device_has_them() {
  int major = 0, minor = 0;
  REQUIRE(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess);
  REQUIRE(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) == cudaSuccess);
  if (major == 9 && minor == 0) return true;
  WARN("skipped: the device is of compute capability " << major << "." << minor << ", not 9.0");
  return false;
}

template <class T>
using FourOf = std::array<T, 4>;

CUtensorMap map_of(const Bf16* data, FourOf<cuuint64_t> size, FourOf<cuuint32_t> box, CUtensorMapSwizzle swizzle) {
  void* function = nullptr;
  REQUIRE(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, nullptr) ==
          cudaSuccess);
  cuuint64_t strides[3] = {size[0] * sizeof(Bf16)};
  for (size_t d = 1; d < 3; ++d) strides[d] = strides[d - 1] * size[d];
  const cuuint32_t ones[4] = {1, 1, 1, 1};
  CUtensorMap map;
  REQUIRE(reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
              &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<Bf16*>(data), size.data(), strides, box.data(),
              ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return map;
}
// Of `rows` rows of `columns` elements: tiles of 64 x 64 with the 128-byte swizzle.
CUtensorMap map_of_rows(const Bf16* data, cuuint64_t columns, cuuint64_t rows) {
  return map_of(data, {columns, rows, 1, 1}, {64, 64, 1, 1}, CU_TENSOR_MAP_SWIZZLE_128B);
}

__device__ char* aligned_shared() {
  constexpr uintptr_t kPeriod = 1024;  // of the swizzle
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(cu_dyn_shared<char>()) + kPeriod - 1) / kPeriod *
                                 kPeriod);
}
constexpr unsigned kTileBytes = 64 * 128;

struct Corner {
  int x, y, z, w;
};

__global__ void load_tile(const __grid_constant__ CUtensorMap map, Corner at, Bf16* out, int elements) {
  char* tile = aligned_shared();
  CU_SHARED(uint64_t, barrier, [1]);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect(barrier, unsigned(elements) * 2);
    ptx::tile_load_4d(tile, &map, barrier, at.x, at.y, at.z, at.w);
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
    ptx::tile_load_4d(a, &map_a, barrier, 0, 0, 0, 0);
    for (int i = 0; i < N / 64; ++i)
      ptx::tile_load_4d(b + i * int(kTileBytes), &map_b, barrier, kTransposeB ? 64 * i : 0, kTransposeB ? 0 : 64 * i, 0,
                        0);
  }
  ptx::mbarrier_wait(barrier, 0);
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, row = warp * 16 + lane / 4;
  float sums[N / 2];
  uint32_t registers[4][4];
  if constexpr (kARegisters) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        memcpy(&registers[k][r], a_rows + (row + r % 2 * 8) * 64 + k * 16 + r / 2 * 8 + lane % 4 * 2, 4);
  }
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    // 16 k further: 32 bytes along a row, or 16 rows of 128 bytes.
    const uint64_t db = ptx::wgmma_descriptor(b + k * (kTransposeB ? 16 * 128 : 32), kTileBytes, 1024);
    if constexpr (kARegisters) {
      ptx::wgmma_bf16<N, kTransposeB>(sums, registers[k], db, k > 0);
    } else {
      const uint64_t da = ptx::wgmma_descriptor(a + k * (kTransposeA ? 16 * 128 : 32), kTileBytes, 1024);
      ptx::wgmma_bf16<N, kTransposeA, kTransposeB>(sums, da, db, k > 0);
    }
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::wgmma_settle(sums);
#pragma unroll
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
  const CUtensorMap map_a = map_of_rows(a.data(), 64, 64);
  const CUtensorMap map_b = kTransposeB ? map_of_rows(b.data(), N, 64) : map_of_rows(b.data(), 64, N);
  for (int run = 0; run < 3; ++run) {
    test_schedule(run);
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
  test_schedule(0);
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

}  // namespace

TEST_CASE("a tile of a tensor, with zeros outside of it") {
  if (!device_has_them()) return;
  DeviceVector<Bf16> in(3 * 2 * 5 * 24), out(2 * 4 * 16);  // a tile of 16 x 4 x 1 x 2
  for (size_t i = 0; i < in.size(); ++i) in[i] = __float2bfloat16(float(i % 251 + 1));
  const Corner at = GENERATE(Corner{0, 0, 0, 0}, Corner{8, 1, 1, 0}, Corner{16, 3, 1, 2}, Corner{-8, -2, 0, 1});
  const CUtensorMap map = map_of(in.data(), {24, 5, 2, 3}, {16, 4, 1, 2}, CU_TENSOR_MAP_SWIZZLE_NONE);
  CU_LAUNCH(load_tile, dim3(1), dim3(32), 4096, nullptr, map, at, out.data(), int(out.size()));
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  for (int i = 0; i < int(out.size()); ++i) {
    const int x = at.x + i % 16, y = at.y + i / 16 % 4, w = at.w + i / 64;
    const bool inside = x >= 0 && x < 24 && y >= 0 && y < 5 && w < 3;
    INFO("element " << i);
    CHECK(__bfloat162float(out[size_t(i)]) == (inside ? float((((w * 2 + at.z) * 5 + y) * 24 + x) % 251 + 1) : 0));
  }
}

TEST_CASE("the 128-byte swizzle exchanges 16-byte pieces of a row by its number") {
  if (!device_has_them()) return;
  DeviceVector<Bf16> in(64 * 64), out(64 * 64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = __float2bfloat16(float(i / 8 % 256));
  CU_LAUNCH(load_tile, dim3(1), dim3(32), 1024 + kTileBytes, nullptr, map_of_rows(in.data(), 64, 64), Corner{},
            out.data(), int(out.size()));
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  for (size_t row = 0; row < 64; ++row)
    for (size_t piece = 0; piece < 8; ++piece)
      CHECK(__bfloat162float(out[row * 64 + (piece ^ row % 8) * 8]) == float((row * 8 + piece) % 256));
}

TEST_CASE("products of a warp group") {
  if (!device_has_them()) return;
  check_product<64, false, false, false>();
  check_product<128, false, false, false>();
  check_product<128, false, true, false>();
  check_product<64, true, false, false>();
  check_product<64, true, true, false>();
  check_product<64, false, true, true>();
  check_product<128, false, true, true>();
  check_product<128, false, false, true>();
}

TEST_CASE("stmatrix takes from each lane two neighbours of a row") {
  if (!device_has_them()) return;
  const bool conflicts = GENERATE(false, true);
  DeviceVector<uint16_t> rows(32 * 8), fragments(32 * 8), out(32 * 8);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = uint16_t(i * 7);
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t matrix = 0; matrix < 4; ++matrix)
      for (size_t half = 0; half < 2; ++half)
        fragments[lane * 8 + matrix * 2 + half] = rows[(matrix * 8 + lane / 4) * 8 + lane % 4 * 2 + half];
  const int stride = conflicts ? 128 : 16;  // 128 bytes are all the banks
  const auto before = warp_counts();
  CU_LAUNCH(store_matrices, dim3(1), dim3(32), size_t(32 * stride), nullptr,
            static_cast<const uint16_t*>(fragments.data()), stride, out.data());
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(out == rows);
  if (before) CHECK(warp_counts()->conflicts - before->conflicts == (conflicts ? 4 * 7 : 0));
}
