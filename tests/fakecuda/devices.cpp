// Devices: Hopper's limits, and a name that says what they are.
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "tests/fakecuda/errors.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/stream.h"

namespace fake {
namespace {

thread_local int tl_device = 0;
std::set<std::pair<int, int>> peers;  // (from, to), with `mu` held

bool exists(int device) { return device >= 0 && device < device_count(); }

cudaDeviceProp properties(int device) {
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof p.name, "emulated device (not a GPU)");
  std::memset(p.uuid.bytes, device + 1, sizeof p.uuid.bytes);
  p.totalGlobalMem = memory_of_a_device();
  p.sharedMemPerBlock = 48u << 10;
  p.sharedMemPerBlockOptin = 227u << 10;
  p.sharedMemPerMultiprocessor = 228u << 10;
  p.reservedSharedMemPerBlock = 1u << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.major = compute_capability(device) / 10;
  p.minor = compute_capability(device) % 10;
  p.multiProcessorCount = 4;
  p.l2CacheSize = 50 << 20;
  p.memoryBusWidth = 5120;
  p.asyncEngineCount = 3;
  p.pciBusID = device + 1;
  p.ECCEnabled = 1;
  p.unifiedAddressing = p.managedMemory = p.concurrentManagedAccess = 1;
  p.canMapHostMemory = p.hostRegisterSupported = 1;
  p.concurrentKernels = p.streamPrioritiesSupported = 1;
  p.memoryPoolsSupported = 1;
  return p;
}

bool attribute(int* value, cudaDeviceAttr attribute, const cudaDeviceProp& p) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; return true;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; return true;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; return true;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(p.sharedMemPerBlock); return true;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(p.sharedMemPerBlockOptin); return true;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = int(p.sharedMemPerMultiprocessor); return true;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; return true;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; return true;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; return true;
    case cudaDevAttrWarpSize: *value = p.warpSize; return true;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; return true;
    case cudaDevAttrEccEnabled: *value = p.ECCEnabled; return true;
    case cudaDevAttrManagedMemory: *value = p.managedMemory; return true;
    case cudaDevAttrConcurrentManagedAccess: *value = p.concurrentManagedAccess; return true;
    case cudaDevAttrUnifiedAddressing: *value = p.unifiedAddressing; return true;
    case cudaDevAttrHostRegisterSupported: *value = p.hostRegisterSupported; return true;
    case cudaDevAttrMemoryPoolsSupported: *value = p.memoryPoolsSupported; return true;
    case cudaDevAttrAsyncEngineCount: *value = p.asyncEngineCount; return true;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; return true;
    case cudaDevAttrClockRate: *value = 1980000; return true;  // kHz; an H100's
    case cudaDevAttrMemoryClockRate: *value = 2619000; return true;
    case cudaDevAttrPciBusId: *value = p.pciBusID; return true;
    case cudaDevAttrPciDeviceId: *value = p.pciDeviceID; return true;
    case cudaDevAttrPciDomainId: *value = p.pciDomainID; return true;
    default: return false;
  }
}

}  // namespace

int current_device() { return tl_device; }

}  // namespace fake
using namespace fake;

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const cudaError_t e = unavailable()) return e;
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t e = unavailable()) return e;
  if (!exists(device)) return note(cudaErrorInvalidDevice);
  tl_device = device;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  if (const cudaError_t e = unavailable()) return e;
  return note(exists(device) ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t e = unavailable()) return e;
  *device = tl_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  if (const cudaError_t e = unavailable()) return e;
  if (!exists(device)) return note(cudaErrorInvalidDevice);
  *out = properties(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  if (const cudaError_t e = unavailable()) return e;
  if (!exists(device)) return note(cudaErrorInvalidDevice);
  if (!attribute(value, which, properties(device))) fail("attribute %d of a device is not emulated", int(which));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (const cudaError_t e = unavailable()) return e;
  if (!exists(device)) return note(cudaErrorInvalidDevice);
  std::snprintf(text, size_t(length), "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver_version();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (const cudaError_t e = unavailable()) return e;
  if (!exists(device) || !exists(peer)) return note(cudaErrorInvalidDevice);
  *can = device != peer && peer_access();
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  int can = 0;
  if (const cudaError_t e = cudaDeviceCanAccessPeer(&can, tl_device, peer)) return e;
  if (!can) return note(cudaErrorPeerAccessUnsupported);
  const std::lock_guard hold(mu);
  return note(peers.insert({tl_device, peer}).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr which, int device, int peer) {
  int can = 0;
  if (const cudaError_t e = cudaDeviceCanAccessPeer(&can, device, peer)) return e;
  *value = which == cudaDevP2PAttrPerformanceRank ? 0 : can;
  return cudaSuccess;
}
}
