// Devices of the runtime's shim, and machines that have none.
#include <catch2/catch.hpp>

#include <cstring>

#include "in_child.h"
#include "ptx.h"
#include "tests/fakecuda/fake_cuda.h"

using namespace trainer::test;

namespace {

__global__ void nothing() {}

// What a program meets first on a machine whose every call fails alike.
void check_all_fail(cudaError_t code) {
  int count = -1;
  void* p = nullptr;
  cudaStream_t stream = nullptr;
  cudaDeviceProp properties;
  size_t free = 0, total = 0;
  CHECK(cudaGetDeviceCount(&count) == code);
  CHECK(count == 0);
  CHECK(cudaSetDevice(0) == code);
  CHECK(cudaMalloc(&p, 16) == code);
  CHECK(cudaMallocHost(&p, 16) == code);
  CHECK(cudaStreamCreate(&stream) == code);
  CHECK(cudaGetDeviceProperties(&properties, 0) == code);
  CHECK(cudaMemGetInfo(&free, &total) == code);
  CHECK(cudaDeviceSynchronize() == code);
  CHECK(cudaGetLastError() == code);
  CU_LAUNCH(nothing, dim3(1), dim3(1), 0, nullptr);
  CHECK(cudaGetLastError() == code);
}

}  // namespace

TEST_CASE("a machine without a GPU") {
  const Setting none("FAKECUDA_DEVICES", "0");
  check_all_fail(cudaErrorNoDevice);
  CHECK(std::string(cudaGetErrorName(cudaErrorNoDevice)) == "cudaErrorNoDevice");
  CHECK(std::string(cudaGetErrorString(cudaErrorNoDevice)) == "no CUDA-capable device is detected");
}

TEST_CASE("a driver older than the runtime, and no driver") {
  for (const char* version : {"12020", "0"}) {
    const Setting old("FAKECUDA_DRIVER", version);
    check_all_fail(cudaErrorInsufficientDriver);
    int driver = -1, runtime = -1;
    CHECK(cudaDriverGetVersion(&driver) == cudaSuccess);
    CHECK(driver == std::atoi(version));
    CHECK(cudaRuntimeGetVersion(&runtime) == cudaSuccess);
    CHECK(runtime == CUDART_VERSION);
  }
}

TEST_CASE("several devices of several kinds") {
  const Setting three("FAKECUDA_DEVICES", "3"), kinds("FAKECUDA_ARCH", "90,80"), memory("FAKECUDA_MEM_MB", "7");
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 3);
  for (int device = 0; device < 3; ++device) {
    cudaDeviceProp p;
    REQUIRE(cudaGetDeviceProperties(&p, device) == cudaSuccess);
    int major = 0, shared = 0;
    REQUIRE(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess);
    REQUIRE(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess);
    CHECK(p.major == (device == 0 ? 9 : 8));
    CHECK(major == p.major);
    CHECK(size_t(shared) == p.sharedMemPerBlockOptin);
    CHECK(p.totalGlobalMem == 7u << 20);
    char bus[16];
    REQUIRE(cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess);
    CHECK(std::string(bus) == "0000:0" + std::to_string(device + 1) + ":00.0");
  }
  CHECK(cudaSetDevice(3) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  int device = -1;
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 0);
}

TEST_CASE("peers") {
  int can = -1;
  REQUIRE(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess);
  CHECK(can == 1);
  REQUIRE(cudaDeviceCanAccessPeer(&can, 0, 0) == cudaSuccess);
  CHECK(can == 0);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
  const Setting none("FAKECUDA_PEER", "0");
  REQUIRE(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess);
  CHECK(can == 0);
  CHECK(cudaDeviceEnablePeerAccess(2, 0) == cudaErrorPeerAccessUnsupported);
  cudaGetLastError();
}

TEST_CASE("a call that is told to fail fails once") {
  const End end = in_child([] {
    setenv("FAKECUDA_FAIL", "cudaStreamSynchronize:2", 1);
    const bool right = cudaStreamSynchronize(nullptr) == cudaSuccess &&
                       cudaStreamSynchronize(nullptr) == cudaErrorLaunchFailure &&
                       cudaStreamSynchronize(nullptr) == cudaSuccess;
    _exit(right ? 42 : 1);
  });
  CHECK(end.code == 42);
}
