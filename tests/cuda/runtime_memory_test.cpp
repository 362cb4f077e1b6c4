// Memory and copies of the runtime's shim.
#include <catch2/catch.hpp>

#include <cmath>
#include <numeric>
#include <vector>

#include "in_child.h"
#include "ptx.h"
#include "tests/cuemu/sanitizers.h"
#include "tests/fakecuda/fake_cuda.h"

using namespace trainer::test;
using Catch::Matchers::Contains;

namespace {

template <class T>
T* device_memory(size_t n) {
  void* p = nullptr;
  REQUIRE(cudaMalloc(&p, n * sizeof(T)) == cudaSuccess);
  return static_cast<T*>(p);
}
template <class T>
std::vector<T> on_host(const T* p, size_t n) {
  std::vector<T> v(n);
  REQUIRE(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
  return v;
}
struct OneStream {
  cudaStream_t stream = nullptr;
  OneStream() { REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess); }
  ~OneStream() { cudaStreamDestroy(stream); }
  operator cudaStream_t() const { return stream; }
  void wait() const { REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess); }
};
void check_ends(const End& end, const char* text) {
  CHECK(end.code == fake::kWrongProgram);
  CHECK_THAT(end.message, Contains(text));
}
__global__ void twice(const int* in, int* out) { out[threadIdx.x] = 2 * in[threadIdx.x]; }

}  // namespace

TEST_CASE("host code that touches device memory is caught") {
  for (const bool writes : {false, true}) {
    const End end = in_child([writes] {
      volatile int* p = device_memory<int>(4);
      if (writes) *p = 1;
      else static_cast<void>(*p);
    });
    check_ends(end, "host code touches device memory");
  }
}

TEST_CASE("fresh device memory holds NaN") {
  float* p = device_memory<float>(3);
  CHECK(reinterpret_cast<uintptr_t>(p) % 256 == 0);
  for (const float v : on_host(p, 3)) CHECK(std::isnan(v));
  cudaFree(p);
}

TEST_CASE("a device's memory ends where it is told") {
  const Setting little("FAKECUDA_MEM_MB", "3");
  size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(total == 3u << 20);
  CHECK(free == total);
  char* first = device_memory<char>(2u << 20);
  void* second = nullptr;
  CHECK(cudaMalloc(&second, (1u << 20) + 1) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);  // another device has its own
  CHECK(cudaMalloc(&second, (1u << 20) + 1) == cudaSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == 1u << 20);
  cudaFree(first);
  cudaFree(second);
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == total);
}

TEST_CASE("copies of every kind, rows, and memsets") {
  std::vector<int> host(12), back(12);
  std::iota(host.begin(), host.end(), 1);
  int *a = device_memory<int>(12), *b = device_memory<int>(12);
  int *pinned = nullptr, *managed = nullptr;
  REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&pinned), 48) == cudaSuccess);
  REQUIRE(cudaMallocManaged(reinterpret_cast<void**>(&managed), 48, cudaMemAttachGlobal) == cudaSuccess);
  const OneStream s;
  REQUIRE(cudaMemcpyAsync(a, host.data(), 48, cudaMemcpyHostToDevice, s) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(b, a, 48, cudaMemcpyDeviceToDevice, s) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(managed, b, 48, cudaMemcpyDefault, s) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(pinned, managed, 48, cudaMemcpyDeviceToHost, s) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(a, pinned, 48, cudaMemcpyDefault, s) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(back.data(), a, 48, cudaMemcpyDefault, s) == cudaSuccess);
  CHECK(back == host);  // a pageable destination is there when the call returns
  REQUIRE(cudaMemsetAsync(b, 0xff, 24, s) == cudaSuccess);
  // Two rows of 8 bytes, 16 apart, to rows 12 apart.
  REQUIRE(cudaMemcpy2DAsync(b, 12, a, 16, 8, 2, cudaMemcpyDeviceToDevice, s) == cudaSuccess);
  s.wait();
  CHECK(on_host(b, 6) == std::vector<int>{1, 2, -1, 5, 6, -1});
  CHECK(cudaMemcpy2DAsync(b, 4, a, 16, 8, 2, cudaMemcpyDeviceToDevice, s) == cudaErrorInvalidValue);
  cudaGetLastError();
  cudaFree(a);
  cudaFree(b);
  cudaFree(managed);
  cudaFreeHost(pinned);
}

TEST_CASE("a pageable source is read by the call, a pinned or registered one when the stream comes to it") {
  int* device = device_memory<int>(1);
  int* pinned = nullptr;
  REQUIRE(cudaHostAlloc(reinterpret_cast<void**>(&pinned), 4, cudaHostAllocDefault) == cudaSuccess);
  int pageable = 1, registered = 1;
  REQUIRE(cudaHostRegister(&registered, 4, cudaHostRegisterDefault) == cudaSuccess);
  CHECK(cudaHostRegister(&registered, 4, cudaHostRegisterDefault) == cudaErrorHostMemoryAlreadyRegistered);
  const OneStream s;
  for (int* source : {pinned, &pageable, &registered}) {
    *source = 1;
    REQUIRE(cudaMemcpyAsync(device, source, 4, cudaMemcpyHostToDevice, s) == cudaSuccess);
    const bool read_late = source != &pageable;
    if (read_late && cuemu::kThreadSanitizer) continue;  // it would find the race that shows when the source is read
    *source = 2;
    s.wait();
    CHECK(on_host(device, 1)[0] == (read_late ? 2 : 1));
  }
  CHECK(cudaHostUnregister(&registered) == cudaSuccess);
  CHECK(cudaHostUnregister(&registered) == cudaErrorHostMemoryNotRegistered);
  cudaGetLastError();
  cudaFree(device);
  cudaFreeHost(pinned);
}

TEST_CASE("what only a wrong program does with memory") {
  check_ends(in_child([] {
               int* p = device_memory<int>(1);
               cudaFree(p);
               cudaFree(p);
             }),
             "not a live allocation");
  check_ends(in_child([] {
               int* p = device_memory<int>(1);
               cudaMemsetAsync(p, 0, 8, nullptr);
             }),
             "is not inside a live device allocation");
  check_ends(in_child([] {
               int *p = device_memory<int>(1), host = 0;
               cudaMemcpyAsync(p, &host, 4, cudaMemcpyDeviceToHost, nullptr);
             }),
             "a copy of kind 2 has pointers of other kinds");
  // Two streams without an event between a memset and the free.
  bool caught = false;
  for (int seed = 1; seed <= 10 && !caught; ++seed)
    caught = in_child([seed] {
               fake::set_seed(uint64_t(seed));
               const OneStream a, b;
               int* p = device_memory<int>(1);
               cudaMemsetAsync(p, 0, 4, a);
               cudaFreeAsync(p, b);
               cudaDeviceSynchronize();
             }).message.find("that was freed before it ran") != std::string::npos;
  CHECK(caught);
}

TEST_CASE("a kernel works on device memory; its launch is checked as on the device") {
  int *in = device_memory<int>(8), *out = device_memory<int>(8);
  const std::vector<int> host{1, 2, 3, 4, 5, 6, 7, 8};
  const OneStream s;
  REQUIRE(cudaMemcpyAsync(in, host.data(), 32, cudaMemcpyHostToDevice, s) == cudaSuccess);
  CU_LAUNCH(twice, dim3(1), dim3(8), 0, s, in, out);
  REQUIRE(cudaGetLastError() == cudaSuccess);
  s.wait();
  CHECK(on_host(out, 8) == std::vector<int>{2, 4, 6, 8, 10, 12, 14, 16});

  const auto launch = [&](dim3 grid, dim3 block, size_t shared) {
    CU_LAUNCH(twice, grid, block, shared, s, in, out);
    return cudaGetLastError();
  };
  CHECK(launch(dim3(0), dim3(8), 0) == cudaErrorInvalidConfiguration);
  CHECK(launch(dim3(1), dim3(1025), 0) == cudaErrorInvalidConfiguration);
  CHECK(launch(dim3(1), dim3(8), (48 << 10) + 1) == cudaErrorInvalidValue);
  CHECK(CU_FUNC_SMEM(twice, 227 << 10) == cudaSuccess);
  CHECK(launch(dim3(1), dim3(8), (48 << 10) + 1) == cudaSuccess);
  CHECK(CU_FUNC_SMEM(twice, (227 << 10) + 1) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(launch(dim3(1), dim3(8), 0) == cudaErrorInvalidResourceHandle);  // the stream is of device 0
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  s.wait();
  cudaFree(in);
  cudaFree(out);
}
