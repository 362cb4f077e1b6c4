// Host memory that the device reaches: pinned by the runtime, or the caller's and registered.
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/fakecuda/capture.h"
#include "tests/fakecuda/errors.h"
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/stream.h"

namespace fake {
namespace {

struct HostRange {
  size_t bytes;
  bool registered;  // the caller's memory
};
std::map<uintptr_t, HostRange> pinned;  // by address; with `mu` held

}  // namespace

bool is_pinned(const void* p, size_t n) { return containing(pinned, p, n); }

}  // namespace fake
using namespace fake;

extern "C" {
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
  constexpr size_t kPage = 4096;
  if (const cudaError_t e = unavailable()) return e;
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  if (injected("cudaHostAlloc") || posix_memalign(p, kPage, bytes)) return note(cudaErrorMemoryAllocation);
  std::memset(*p, kPoison, bytes);
  const std::lock_guard hold(mu);
  pinned[reinterpret_cast<uintptr_t>(*p)] = {bytes, false};
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t bytes) { return cudaHostAlloc(p, bytes, 0); }
cudaError_t cudaFreeHost(void* p) {
  if (const cudaError_t e = unavailable()) return e;
  if (!p) return cudaSuccess;
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  finish_device("cudaFreeHost");
  {
    const std::lock_guard hold(mu);
    const auto found = pinned.find(reinterpret_cast<uintptr_t>(p));
    if (found == pinned.end() || found->second.registered) fail("cudaFreeHost(%p): not from cudaHostAlloc", p);
    pinned.erase(found);
  }
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
  if (const cudaError_t e = unavailable()) return e;
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  if (!p || !bytes) return note(cudaErrorInvalidValue);
  if (injected("cudaHostRegister")) return note(cudaErrorMemoryAllocation);
  const std::lock_guard hold(mu);
  const auto begin = reinterpret_cast<uintptr_t>(p);
  auto next = pinned.lower_bound(begin + bytes);
  if (next != pinned.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin)
    return note(cudaErrorHostMemoryAlreadyRegistered);
  pinned[begin] = {bytes, true};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  if (const cudaError_t e = unavailable()) return e;
  const std::lock_guard hold(mu);
  const auto found = pinned.find(reinterpret_cast<uintptr_t>(p));
  if (found == pinned.end() || !found->second.registered) return note(cudaErrorHostMemoryNotRegistered);
  pinned.erase(found);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  if (where_is(host, 1) != Where::pinned) return note(cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}
}
