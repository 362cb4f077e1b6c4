// Copies and fills.
#include <cstring>
#include <mutex>

#include "tests/fakecuda/capture.h"
#include "tests/fakecuda/errors.h"
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/stream.h"

namespace fake {
namespace {

bool on_device(Where w) { return w == Where::device || w == Where::managed; }
bool on_host(Where w) { return w != Where::device; }

void check_kind(cudaMemcpyKind kind, Where to, Where from) {
  const bool right = kind == cudaMemcpyDefault || (kind == cudaMemcpyHostToDevice && on_device(to) && on_host(from)) ||
                     (kind == cudaMemcpyDeviceToHost && on_host(to) && on_device(from)) ||
                     (kind == cudaMemcpyDeviceToDevice && on_device(to) && on_device(from)) ||
                     (kind == cudaMemcpyHostToHost && on_host(to) && on_host(from));
  if (!right) fail("a copy of kind %d has pointers of other kinds", int(kind));
}

struct Rows {  // of a copy of several rows
  size_t bytes, count, to_pitch, from_pitch;
  size_t span(size_t pitch) const { return (count - 1) * pitch + bytes; }
};
void copy_rows(char* to, const char* from, const Rows& rows) {
  for (size_t i = 0; i < rows.count; ++i) {
    acc_read(from + i * rows.from_pitch, rows.bytes);
    acc_write(to + i * rows.to_pitch, rows.bytes);
    std::memmove(to + i * rows.to_pitch, from + i * rows.from_pitch, rows.bytes);
  }
}

// A pageable source is read before the call returns, a pageable destination is written before.
cudaError_t copy(void* to, const void* from, Rows rows, cudaMemcpyKind kind, cudaStream_t handle) {
  if (const cudaError_t e = unavailable()) return e;
  if (injected("cudaMemcpyAsync")) return note(cudaErrorInvalidValue);
  if (!rows.bytes || !rows.count) return cudaSuccess;
  const size_t from_bytes = rows.span(rows.from_pitch), to_bytes = rows.span(rows.to_pitch);
  const Where to_where = where_is(to, to_bytes), from_where = where_is(from, from_bytes);
  check_kind(kind, to_where, from_where);
  if (on_device(to_where)) check_dev(to, to_bytes, "the destination of a copy");
  if (on_device(from_where)) check_dev(from, from_bytes, "the source of a copy");
  auto* destination = static_cast<char*>(to);
  auto* source = static_cast<const char*>(from);
  const bool pageable = to_where == Where::pageable || from_where == Where::pageable;
  {
    const std::lock_guard hold(mu);
    ++counters.copies;
    counters.pageable_async += pageable;
    Stream& stream = stream_of(handle);
    if (pageable && stream.capture) return note(invalidate(stream, cudaErrorStreamCaptureUnsupported));
  }
  if (from_where == Where::pageable) {
    auto staged = std::make_shared<std::vector<char>>(source, source + from_bytes);
    const auto run = [=] { copy_rows(destination, staged->data(), rows); };
    if (const cudaError_t e = enqueue(handle, {"a copy from pageable memory", run, {}})) return e;
  } else {
    const auto run = [=] { copy_rows(destination, source, rows); };
    if (const cudaError_t e = enqueue(handle, {"a copy", run, {}})) return e;
  }
  return to_where == Where::pageable ? cudaStreamSynchronize(handle) : cudaSuccess;
}
Rows one_row(size_t bytes) { return {bytes, 1, bytes, bytes}; }

}  // namespace
}  // namespace fake
using namespace fake;

// As CUDA's "API synchronization behavior" has it, cudaMemset and a cudaMemcpy from pageable memory to the device return
// before they are done.
extern "C" {
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy(to, from, one_row(n), kind, stream);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, cudaStream_t stream) {
  return copy(to, from, one_row(n), cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (to_pitch < width || from_pitch < width) return note(cudaErrorInvalidValue);
  return copy(to, from, {width, height, to_pitch, from_pitch}, kind, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  if (const cudaError_t e = copy(to, from, one_row(n), kind, nullptr)) return e;
  const bool staged = kind == cudaMemcpyHostToDevice && where_is(from, n) == Where::pageable;
  return staged ? cudaSuccess : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t stream) {
  if (const cudaError_t e = unavailable()) return e;
  check_dev(p, n, "cudaMemsetAsync");
  return enqueue(stream, {"a memset",
                          [=] {
                            acc_write(p, n);
                            std::memset(p, value, n);
                          },
                          {}});
}
cudaError_t cudaMemset(void* p, int value, size_t n) {
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  return cudaMemsetAsync(p, value, n, nullptr);
}
}
