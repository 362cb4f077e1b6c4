// Which element of a matrix lies in which register of which lane: after "Matrix Fragments for mma.m16n8k16 with
// floating point type" and "ldmatrix" of the PTX ISA.
#include <catch2/catch.hpp>

#include <vector>

#include "device_memory.h"
#include "ptx.h"
#include "tests/support/cuda/schedule.h"

using namespace trainer::test;

namespace {

template <class T>
using DeviceVector = std::vector<T, DeviceAllocator<T>>;

// a: 16 x 16, b: 16 x 8, c and d: 16 x 8, by rows. Element i of a fragment as the ISA counts them.
__global__ void multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, const float* c, float* d) {
  const int lane = int(threadIdx.x), group = lane >> 2, in_group = lane & 3;
  __nv_bfloat16 fa[8], fb[4];
  float fc[4], fd[4];
  for (int i = 0; i < 8; ++i) {
    const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
    const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
    fa[i] = a[row * 16 + column];
  }
  for (int i = 0; i < 4; ++i) fb[i] = b[(in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)) * 8 + group];
  for (int i = 0; i < 4; ++i) fc[i] = c[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)];
  uint32_t ra[4], rb[2];
  memcpy(ra, fa, sizeof ra);
  memcpy(rb, fb, sizeof rb);
  ptx::mma_m16n8k16_bf16(fd, ra, rb[0], rb[1], fc);
  for (int i = 0; i < 4; ++i) d[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = fd[i];
}

// Four matrices of 8 rows, `stride` bytes from row to row; out[transposed][lane][matrix][half].
__global__ void load_matrices(const uint16_t* in, int stride, uint16_t* out) {
  const int lane = int(threadIdx.x);
  char* shared = cu_dyn_shared<char>();
  memcpy(shared + lane * stride, in + lane * 8, 16);
  __syncthreads();
  uint32_t r[4];
  ptx::ldmatrix_x4(r, shared + lane * stride);
  memcpy(out + lane * 8, r, sizeof r);
  ptx::ldmatrix_x4_trans(r, shared + lane * stride);
  memcpy(out + 32 * 8 + lane * 8, r, sizeof r);
}

}  // namespace

TEST_CASE("mma multiplies the matrices that the fragments hold") {
  DeviceVector<__nv_bfloat16> a(16 * 16), b(16 * 8);
  DeviceVector<float> c(16 * 8), d(16 * 8);
  for (size_t i = 0; i < a.size(); ++i) a[i] = __float2bfloat16(float(int(i * 37 % 61) - 30));
  for (size_t i = 0; i < b.size(); ++i) b[i] = __float2bfloat16(float(int(i * 53 % 41) - 20));
  for (size_t i = 0; i < c.size(); ++i) c[i] = float(i);
  const auto before = warp_counts();
  CU_LAUNCH(multiply, dim3(1), dim3(32), 0, nullptr, a.data(), b.data(), c.data(), d.data());
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  for (size_t m = 0; m < 16; ++m)
    for (size_t n = 0; n < 8; ++n) {
      float wanted = c[m * 8 + n];
      for (size_t k = 0; k < 16; ++k) wanted += __bfloat162float(a[m * 16 + k]) * __bfloat162float(b[k * 8 + n]);
      INFO("row " << m << " column " << n);
      CHECK(d[m * 8 + n] == wanted);
    }
  if (before) CHECK(warp_counts()->mma == before->mma + 1);
}

TEST_CASE("ldmatrix gives each lane two neighbours of a row, or of a column") {
  const bool conflicts = GENERATE(false, true);
  DeviceVector<uint16_t> in(32 * 8), out(2 * 32 * 8);
  for (size_t i = 0; i < in.size(); ++i) in[i] = uint16_t(i);
  const auto before = warp_counts();
  const int stride = conflicts ? 128 : 16;  // 128 bytes are all the banks
  CU_LAUNCH(load_matrices, dim3(1), dim3(32), size_t(32 * stride), nullptr, in.data(), stride, out.data());
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t matrix = 0; matrix < 4; ++matrix)
      for (size_t half = 0; half < 2; ++half) {
        const size_t row = lane / 4, column = lane % 4 * 2 + half, at = lane * 8 + matrix * 2 + half;
        INFO("lane " << lane << " matrix " << matrix << " half " << half);
        CHECK(out[at] == in[(matrix * 8 + row) * 8 + column]);
        CHECK(out[32 * 8 + at] == in[(matrix * 8 + column) * 8 + row]);
      }
  if (before) CHECK(warp_counts()->conflicts - before->conflicts == (conflicts ? 2 * 4 * 7 : 0));
}
