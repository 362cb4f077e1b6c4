// Every check of the emulated device, by a kernel that breaks its rule.
#include <catch2/catch.hpp>

#include "in_child.h"
#include "ptx.h"
#include "tests/cuemu/sanitizers.h"

using namespace trainer::test;
using Catch::Matchers::Contains;

namespace {

constexpr unsigned kWholeWarp = 0xffffffffu;

__global__ void two_barriers(int*) {
  if (threadIdx.x < 32) __syncthreads();
  else __syncthreads();
}
__global__ void caller_not_in_mask(int* out) { out[threadIdx.x] = __shfl_sync(0x0000ffffu, int(threadIdx.x), 0); }
__global__ void mask_of_lanes_that_left(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(kWholeWarp, int(threadIdx.x), 0);
}
__global__ void different_collectives(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(kWholeWarp, int(threadIdx.x), 0);
  else out[threadIdx.x] = int(__ballot_sync(kWholeWarp, 1));
}
__global__ void shuffle_from_outside(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0x0000ffffu, int(threadIdx.x), 20);
}
__global__ void barrier_against_warp(int*) {
  if (threadIdx.x == 0) __syncwarp();
  else __syncthreads();
}
__global__ void async_misaligned(int* out) {
  ptx::cp_async_16(cu_dyn_shared<char>() + 4, out, true);
  ptx::cp_async_wait<0>();
}
__global__ void async_to_global(int* out) {
  ptx::cp_async_16(out + 4, out, true);
  ptx::cp_async_wait<0>();
}
__global__ void async_forgotten(int* out) {
  ptx::cp_async_16(cu_dyn_shared<char>(), out, true);
  ptx::cp_async_commit();
}
__global__ void past_dynamic(int*) { cu_dyn_shared<char>()[64 + threadIdx.x] = 1; }
__global__ void before_static(int*) {
  CU_SHARED(int, numbers, [32]);
  int* volatile begin = numbers;  // the compiler must not see where it goes
  begin[-1] = 1;
}
__global__ void static_and_dynamic(int*) {
  CU_SHARED(char, more, [1024]);
  more[0] = 1;
}
__global__ void too_much_static(int*) {
  CU_SHARED(char, much, [48 << 10]);
  CU_SHARED(char, more, [16]);
  much[0] = more[0] = 1;
}
__global__ void matrix_misaligned(int*) {
  uint32_t r[4];
  ptx::ldmatrix_x4(r, cu_dyn_shared<char>() + 8);
}
__global__ void matrix_from_global(int* out) {
  uint32_t r[4];
  ptx::ldmatrix_x4(r, out);
}

End run(void (*kernel)(int*), unsigned threads, size_t shared_bytes = 64) {
  return in_child([=] {
    int* memory = nullptr;
    cudaMalloc(reinterpret_cast<void**>(&memory), 4096);
    CU_FUNC_SMEM(kernel, 227 << 10);
    CU_LAUNCH(kernel, dim3(1), dim3(threads), shared_bytes, nullptr, memory);
    cudaDeviceSynchronize();
  });
}
void check(const End& end, const char* kind, const char* text) {
  CHECK(end.code == 66);
  CHECK_THAT(end.message, Contains(kind) && Contains(text) && Contains("(seed "));
}

}  // namespace

TEST_CASE("barriers that not all threads come to") {
  const End end = run(two_barriers, 64);
  check(end, "[barrier]", "divergent __syncthreads: other threads of the block wait at line");
  CHECK_THAT(end.message, Contains("kernel kernel block (0,0,0)") && Contains("emulator_checks_test.cpp:"));
  check(run(barrier_against_warp, 32), "[deadlock]", "no thread can run; 32 of 32 are blocked");
}

TEST_CASE("collectives of a warp with a wrong mask") {
  check(run(caller_not_in_mask, 32), "[warp]", "is not in the mask 0000ffff");
  check(run(mask_of_lanes_that_left, 32), "[warp]", "exited");
  check(run(different_collectives, 32), "[warp]", "different collectives");
  check(run(shuffle_from_outside, 32), "[warp]", "shuffles from lane 20, which is not in the mask 0000ffff");
}

TEST_CASE("cp.async") {
  check(run(async_misaligned, 1), "[align]", "cp.async of 16 bytes");
  check(run(async_to_global, 1), "[space]", "outside shared memory");
  check(run(async_forgotten, 1), "[cp.async]", "exits with 1 copies that it never waited for");
}

TEST_CASE("ldmatrix") {
  check(run(matrix_misaligned, 32), "[align]", "not aligned to 16 bytes");
  check(run(matrix_from_global, 32), "[space]", "outside shared memory");
}

TEST_CASE("shared memory") {
  check(run(static_and_dynamic, 1, 227 << 10), "[smem]", "1024 bytes of static and 232448 of dynamic");
  check(run(too_much_static, 1), "[smem]", "49168 bytes of static shared memory");
  if (cuemu::kAddressSanitizer) {
    for (const auto kernel : {past_dynamic, before_static})
      CHECK_THAT(run(kernel, 1).message, Contains("use-after-poison"));
  } else {
    check(run(past_dynamic, 1), "[smem]", "0 bytes past the end of the dynamic shared memory (64 bytes)");
    check(run(before_static, 1), "[smem]", "in front of a static shared array (128 bytes)");
  }
}
