// After "Stream Capture" in the CUDA C++ Programming Guide and the descriptions of the cudaStreamCapture calls.
#include "tests/fakecuda/capture.h"

#include <algorithm>
#include <mutex>

#include "tests/fakecuda/errors.h"
#include "tests/fakecuda/graph.h"

namespace fake {
namespace {

std::vector<std::weak_ptr<Capture>>& captures() {
  static std::vector<std::weak_ptr<Capture>> under_way;
  return under_way;
}

// Whether an unsafe call of this thread breaks the capture.
bool forbids(const Capture& c) {
  if (c.mode == cudaStreamCaptureModeGlobal) return true;
  return c.mode == cudaStreamCaptureModeThreadLocal && c.thread == std::this_thread::get_id();
}

size_t branch_of(const Capture& c, const Stream& stream) {
  return size_t(std::find(c.members.begin(), c.members.end(), &stream) - c.members.begin());
}

// Every node must come before the last ones of the stream that began.
bool all_joined(const Capture& c) {
  std::vector<bool> seen(c.graph.nodes.size());
  std::vector<size_t> open = c.members[0]->captured_last;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    const std::vector<size_t>& after = c.graph.nodes[node].after;
    open.insert(open.end(), after.begin(), after.end());
  }
  return std::find(seen.begin(), seen.end(), false) == seen.end();
}

cudaError_t begin(Stream& stream, cudaStreamCaptureMode mode) {
  if (stream.capture) return cudaErrorIllegalState;
  auto c = std::make_shared<Capture>();
  c->mode = mode;
  c->thread = std::this_thread::get_id();
  c->members = {&stream};
  std::erase_if(captures(), [](const std::weak_ptr<Capture>& w) { return w.expired(); });
  captures().push_back(c);
  stream.capture = c;
  stream.captured_last.clear();
  return cudaSuccess;
}

cudaError_t end(Stream& stream, Graph** graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> c = stream.capture;
  if (!c) return cudaErrorIllegalState;
  if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  cudaError_t result = cudaSuccess;
  if (c->members[0] != &stream) result = cudaErrorStreamCaptureUnmatched;
  else if (c->invalid) result = cudaErrorStreamCaptureInvalidated;
  else if (!all_joined(*c)) result = cudaErrorStreamCaptureUnjoined;
  for (Stream* member : c->members) {
    member->capture = nullptr;
    member->captured_last.clear();
  }
  c->graph.branches = c->members.size();
  c->members.clear();  // events of the capture are dead from now on
  if (result == cudaSuccess) *graph = new Graph(std::move(c->graph));
  return result;
}

}  // namespace

cudaError_t capture(Stream& stream, Op op) {
  Capture& c = *stream.capture;
  if (c.invalid) return cudaErrorStreamCaptureInvalidated;
  if (op.ready && !op.renew) fail("%s: this shim cannot capture it", op.what);
  c.graph.nodes.push_back({std::move(op), stream.captured_last, branch_of(c, stream)});
  stream.captured_last = {c.graph.nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t join_capture(Stream& stream, const std::shared_ptr<Capture>& source, const std::vector<size_t>& after) {
  if (stream.capture && stream.capture != source) {
    source->invalid = true;
    return invalidate(stream, cudaErrorStreamCaptureMerge);
  }
  if (source->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!stream.capture) {
    stream.capture = source;
    stream.captured_last.clear();
    source->members.push_back(&stream);
  }
  std::vector<size_t>& last = stream.captured_last;
  last.insert(last.end(), after.begin(), after.end());
  std::sort(last.begin(), last.end());
  last.erase(std::unique(last.begin(), last.end()), last.end());
  return cudaSuccess;
}

cudaError_t invalidate(Stream& stream, cudaError_t why) {
  stream.capture->invalid = true;
  return why;
}

bool breaks_a_capture(int device) {
  bool broken = false;
  for (Stream* s : streams()) {
    if (s->device != device || !s->capture || s->flags == cudaStreamNonBlocking) continue;
    s->capture->invalid = true;
    broken = true;
  }
  return broken;
}

cudaError_t forbidden_in_capture() {
  const std::lock_guard hold(mu);
  bool forbidden = false;
  for (const std::weak_ptr<Capture>& weak : captures()) {
    const std::shared_ptr<Capture> c = weak.lock();
    if (!c || c->members.empty() || !forbids(*c)) continue;
    c->invalid = true;
    forbidden = true;
  }
  return forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

}  // namespace fake
using namespace fake;

extern "C" {
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (const cudaError_t e = unavailable()) return e;
  if (!handle) return note(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard hold(mu);
  return note(begin(stream_of(handle), mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  if (const cudaError_t e = unavailable()) return e;
  const std::lock_guard hold(mu);
  Graph* captured = nullptr;
  const cudaError_t e = end(stream_of(handle), &captured);
  *graph = reinterpret_cast<cudaGraph_t>(captured);
  return note(e);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (const cudaError_t e = unavailable()) return e;
  const std::lock_guard hold(mu);
  const std::shared_ptr<Capture>& c = stream_of(handle).capture;
  *status = !c           ? cudaStreamCaptureStatusNone
            : c->invalid ? cudaStreamCaptureStatusInvalidated
                         : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
}
