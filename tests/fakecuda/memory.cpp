#include "tests/fakecuda/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/cuemu/sanitizers.h"
#include "tests/fakecuda/capture.h"
#include "tests/fakecuda/errors.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/stream.h"

namespace fake {
namespace {

constexpr size_t kRegion = size_t{16} << 30;
constexpr size_t kUnit = 256;  // alignment, and the least red zone behind an allocation
constexpr int kManaged = -1;

struct Allocation {
  size_t bytes;
  int device;  // kManaged: of none
};
// By address; all of it with `mu` held.
std::map<uintptr_t, Allocation> allocations;
std::multimap<size_t, uintptr_t> free_chunks;  // by size
std::map<int, size_t> used;                    // by device
char* region = nullptr;
size_t region_used = 0;
int operations_running = 0;
thread_local bool holds_lock = false;  // through fake::Lock

size_t chunk_of(size_t bytes) { return (std::max<size_t>(bytes, 1) + 2 * kUnit - 1) / kUnit * kUnit; }
bool in_region(const void* p) { return region && p >= region && p < region + kRegion; }
bool device_is_touchable() { return operations_running > 0; }
void protect(int protection) {
  constexpr size_t kPage = 4096;
  if (region) mprotect(region, (region_used + kPage - 1) / kPage * kPage, protection);
}

struct sigaction other_handler;
void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(kWrongProgram);
}
void on_fault(int number, siginfo_t* info, void* context) {
  if (in_region(info->si_addr)) {
    say(device_is_touchable() ? "FAKECUDA ERROR: an access to device memory that was never allocated\n"
                              : "FAKECUDA ERROR: host code touches device memory\n");
    _exit(kWrongProgram);
  }
  if (other_handler.sa_flags & SA_SIGINFO) return other_handler.sa_sigaction(number, info, context);
  if (other_handler.sa_handler == SIG_DFL || other_handler.sa_handler == SIG_IGN)
    signal(number, SIG_DFL);  // the access comes again
  else other_handler.sa_handler(number);
}
// Test frameworks put their own handler in before every test case.
void watch_faults() {
  struct sigaction now;
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) return;
  other_handler = now;
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | (now.sa_flags & SA_ONSTACK);
  sigaction(SIGSEGV, &ours, nullptr);
}

char* take_chunk(size_t size) {
  const auto free = free_chunks.find(size);
  if (free != free_chunks.end()) {
    char* chunk = reinterpret_cast<char*>(free->second);
    free_chunks.erase(free);
    return chunk;
  }
  if (!region) {
    void* p = mmap(nullptr, kRegion, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("no address space for the devices' memory");
    region = static_cast<char*>(p);
  }
  if (region_used + size > kRegion) return nullptr;
  char* chunk = region + region_used;
  region_used += size;
  cuemu::asan_poison(chunk, size);
  return chunk;
}
void fill(char* p, size_t n) {
  open_device_memory();
  protect(PROT_READ | PROT_WRITE);  // also of a chunk that is new while operations run
  std::memset(p, kPoison, n);
  close_device_memory();
}

cudaError_t allocate(void** p, size_t bytes) {
  const std::lock_guard hold(mu);
  const int device = current_device();
  if (injected("cudaMalloc") || used[device] + bytes > memory_of_a_device()) return cudaErrorMemoryAllocation;
  char* chunk = take_chunk(chunk_of(bytes));
  if (!chunk) return cudaErrorMemoryAllocation;
  watch_faults();
  cuemu::asan_unpoison(chunk, bytes);
  fill(chunk, bytes);
  allocations[reinterpret_cast<uintptr_t>(chunk)] = {bytes, device};
  used[device] += bytes;
  *p = chunk;
  return cudaSuccess;
}
void release(void* p, const char* call) {
  const std::lock_guard hold(mu);
  const auto found = allocations.find(reinterpret_cast<uintptr_t>(p));
  if (found == allocations.end()) fail("%s(%p): not a live allocation", call, p);
  const Allocation a = found->second;
  allocations.erase(found);
  if (a.device == kManaged) return std::free(p);
  fill(static_cast<char*>(p), a.bytes);
  cuemu::asan_poison(p, chunk_of(a.bytes));
  used[a.device] -= a.bytes;
  free_chunks.emplace(chunk_of(a.bytes), reinterpret_cast<uintptr_t>(p));
}

void check_still_allocated(const void* p, size_t n) {
  if (!n || !in_region(p)) return;
  if (!holds_lock) mu.lock();
  const bool alive = containing(allocations, p, n) != nullptr;
  if (!holds_lock) mu.unlock();
  if (!alive) fail("an operation touches device memory [%p, +%zu) that was freed before it ran", p, n);
}

}  // namespace

Lock::Lock() {
  mu.lock();
  holds_lock = true;
}
Lock::~Lock() {
  holds_lock = false;
  mu.unlock();
}

void open_device_memory() {
  if (operations_running++ == 0) protect(PROT_READ | PROT_WRITE);
}
void close_device_memory() {
  if (--operations_running == 0) protect(PROT_NONE);
}

Where where_is(const void* p, size_t n) {
  const std::lock_guard hold(mu);
  if (in_region(p)) return Where::device;
  if (containing(allocations, p, n)) return Where::managed;
  return is_pinned(p, n) ? Where::pinned : Where::pageable;
}
void check_dev(const void* p, size_t n, const char* what) {
  if (!n) return;
  const std::lock_guard hold(mu);
  if (!containing(allocations, p, n)) fail("%s: [%p, +%zu) is not inside a live device allocation", what, p, n);
}
void acc_read(const void* p, size_t n) {
  check_still_allocated(p, n);
  cuemu::tsan_read(p, n);
}
void acc_write(void* p, size_t n) {
  check_still_allocated(p, n);
  cuemu::tsan_write(p, n);
}

}  // namespace fake
using namespace fake;

extern "C" {
cudaError_t cudaMalloc(void** p, size_t bytes) {
  if (const cudaError_t e = unavailable()) return e;
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  if (!bytes) {
    *p = nullptr;
    return cudaSuccess;
  }
  return note(allocate(p, bytes));
}
cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t handle) {
  if (const cudaError_t e = unavailable()) return e;
  {
    const std::lock_guard hold(mu);
    if (stream_of(handle).capture) fail("allocations in a graph are not emulated");
  }
  return note(allocate(p, bytes));
}
cudaError_t cudaMallocManaged(void** p, size_t bytes, unsigned) {
  if (const cudaError_t e = unavailable()) return e;
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  if (!bytes) return note(cudaErrorInvalidValue);
  // From the heap, at the device's alignment: a sanitizer sees its ends.
  if (posix_memalign(p, kUnit, bytes)) return note(cudaErrorMemoryAllocation);
  std::memset(*p, kPoison, bytes);
  const std::lock_guard hold(mu);
  allocations[reinterpret_cast<uintptr_t>(*p)] = {bytes, kManaged};
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  if (const cudaError_t e = unavailable()) return e;
  if (!p) return cudaSuccess;
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  finish_device("cudaFree");
  release(p, "cudaFree");
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t handle) {
  size_t bytes = 0;
  {
    const std::lock_guard hold(mu);
    if (stream_of(handle).capture) fail("frees in a graph are not emulated");
    const auto found = allocations.find(reinterpret_cast<uintptr_t>(p));
    if (found == allocations.end()) fail("cudaFreeAsync(%p): not a live device allocation", p);
    bytes = found->second.bytes;
  }
  return enqueue(handle, {"cudaFreeAsync",
                          [=] {
                            acc_write(p, bytes);  // for the race detector a free is a write
                            release(p, "cudaFreeAsync");
                          },
                          {}});
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  if (const cudaError_t e = unavailable()) return e;
  const Where where = where_is(p, 1);
  *out = {};
  out->device = -2;  // what the runtime says of memory it does not know
  if (where == Where::pageable) return cudaSuccess;
  const std::lock_guard hold(mu);
  const Allocation* a = containing(allocations, p, 1);
  out->type = where == Where::pinned    ? cudaMemoryTypeHost
              : where == Where::managed ? cudaMemoryTypeManaged
                                        : cudaMemoryTypeDevice;
  out->device = a && a->device >= 0 ? a->device : 0;
  out->devicePointer = const_cast<void*>(p);
  out->hostPointer = where == Where::device ? nullptr : const_cast<void*>(p);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t e = unavailable()) return e;
  const std::lock_guard hold(mu);
  *total = memory_of_a_device();
  *free = *total - std::min(*total, used[current_device()]);
  return cudaSuccess;
}
}
