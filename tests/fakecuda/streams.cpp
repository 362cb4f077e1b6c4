// Streams, host functions and kernels.
#include <algorithm>
#include <map>
#include <mutex>

#include "tests/cuemu/grid.h"
#include "tests/fakecuda/capture.h"
#include "tests/fakecuda/errors.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/stream.h"

namespace fake {
namespace {

constexpr size_t kSharedByDefault = 48u << 10, kSharedAtMost = 227u << 10;
constexpr int kGreatestPriority = -5;  // lower numbers go first

std::map<const void*, size_t>& shared_limits() {  // of kernels that asked for more than the default
  static std::map<const void*, size_t> limits;
  return limits;
}
size_t shared_limit(const void* kernel) {
  const auto found = shared_limits().find(kernel);
  return found == shared_limits().end() ? kSharedByDefault : found->second;
}
thread_local bool tl_in_host_function = false;

}  // namespace

bool in_host_function() { return tl_in_host_function; }

Stream& stream_of(cudaStream_t handle) {
  if (handle) {
    auto* stream = reinterpret_cast<Stream*>(handle);
    if (std::find(streams().begin(), streams().end(), stream) == streams().end())
      fail("%p is no stream that is alive", static_cast<void*>(handle));
    return *stream;
  }
  static std::map<int, std::unique_ptr<Stream>> by_device;
  ++counters.default_stream;
  auto& stream = by_device[current_device()];
  if (!stream) {
    stream = std::make_unique<Stream>();
    stream->device = current_device();
    streams().push_back(stream.get());
  }
  return *stream;
}

}  // namespace fake
using namespace fake;

namespace cuemu {

void enqueue_kernel(const char* name, const void* function, dim3 grid, dim3 block, size_t shared_bytes,
                    cudaStream_t handle, std::function<void()> body) {
  if (unavailable() != cudaSuccess) return;
  {
    const std::lock_guard hold(mu);
    constexpr unsigned kThreads = 1024;
    const uint64_t threads = uint64_t(block.x) * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || !threads || threads > kThreads || injected("cudaLaunchKernel"))
      return void(note(cudaErrorInvalidConfiguration));
    if (shared_bytes > shared_limit(function)) return void(note(cudaErrorInvalidValue));
    if (stream_of(handle).device != current_device()) return void(note(cudaErrorInvalidResourceHandle));
  }
  enqueue(handle, {name,
                   [=] {
                     {
                       const std::lock_guard hold(mu);
                       ++counters.kernels;
                     }
                     run_grid(name, grid, block, shared_bytes, body);
                   },
                   {}});
}

}  // namespace cuemu

extern "C" {
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
  if (const cudaError_t e = unavailable()) return e;
  if (injected("cudaStreamCreate")) return note(cudaErrorMemoryAllocation);
  if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) return note(cudaErrorInvalidValue);
  auto* stream = new Stream;
  stream->device = current_device();
  stream->flags = flags;
  stream->priority = std::clamp(priority, kGreatestPriority, 0);
  const std::lock_guard hold(mu);
  streams().push_back(stream);
  *handle = reinterpret_cast<cudaStream_t>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* handle) { return cudaStreamCreateWithFlags(handle, cudaStreamDefault); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = kGreatestPriority;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  const std::lock_guard hold(mu);
  *priority = stream_of(handle).priority;
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  const std::lock_guard hold(mu);
  *flags = stream_of(handle).flags;
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  const std::lock_guard hold(mu);
  *device = stream_of(handle).device;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  if (const cudaError_t e = unavailable()) return e;
  Stream* stream = nullptr;
  {
    const std::lock_guard hold(mu);
    stream = &stream_of(handle);
    if (!handle || stream->capture) return note(cudaErrorInvalidResourceHandle);
  }
  finish(*stream, "cudaStreamDestroy");
  const std::lock_guard hold(mu);
  std::erase(streams(), stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (const cudaError_t e = unavailable()) return e;
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  if (injected("cudaStreamSynchronize")) return note(cudaErrorLaunchFailure);
  Stream* stream = nullptr;
  {
    const std::lock_guard hold(mu);
    stream = &stream_of(handle);
    if (stream->capture) return note(invalidate(*stream, cudaErrorStreamCaptureUnsupported));
  }
  finish(*stream, "cudaStreamSynchronize");
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  if (const cudaError_t e = unavailable()) return e;
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  perhaps_step();
  Stream* stream = nullptr;
  {
    const std::lock_guard hold(mu);
    stream = &stream_of(handle);
    if (stream->capture) return note(invalidate(*stream, cudaErrorStreamCaptureUnsupported));
    if (!stream->idle()) return note(cudaErrorNotReady);
  }
  stream->fiber.join();
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t e = unavailable()) return e;
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  if (injected("cudaDeviceSynchronize")) return note(cudaErrorLaunchFailure);
  {
    const std::lock_guard hold(mu);
    for (Stream* s : streams())
      if (s->device == current_device() && s->capture) return note(invalidate(*s, cudaErrorStreamCaptureUnsupported));
  }
  finish_device("cudaDeviceSynchronize");
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  return enqueue(handle, {"a host function",
                          [=] {
                            tl_in_host_function = true;
                            function(argument);
                            tl_in_host_function = false;
                          },
                          {}});
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t e = unavailable()) return e;
  if (!kernel || value < 0) return note(cudaErrorInvalidValue);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (size_t(value) > kSharedAtMost) return note(cudaErrorInvalidValue);
  const std::lock_guard hold(mu);
  shared_limits()[kernel] = size_t(value);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* kernel) {
  if (const cudaError_t e = unavailable()) return e;
  *out = {};
  out->maxThreadsPerBlock = 1024;
  const std::lock_guard hold(mu);
  out->maxDynamicSharedSizeBytes = int(shared_limit(kernel));
  return cudaSuccess;
}
// By threads and shared memory; the emulated device has no registers.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int block_size,
                                                          size_t shared_bytes) {
  constexpr size_t kThreads = 2048, kBlocks = 32, kShared = 228u << 10, kReserved = 1024;
  if (block_size <= 0) return note(cudaErrorInvalidValue);
  *blocks = int(std::min({kBlocks, kThreads / size_t(block_size), kShared / (shared_bytes + kReserved)}));
  return cudaSuccess;
}
}
