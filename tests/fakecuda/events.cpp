#include <mutex>

#include "tests/fakecuda/capture.h"
#include "tests/fakecuda/errors.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/stream.h"

namespace fake {
namespace {

struct Event {
  std::shared_ptr<Record> record;  // the last one
  unsigned flags = 0;
  int device = 0;
  bool captured = false;  // the last record was in a capture, and marks a place there
  std::weak_ptr<Capture> capture;
  std::vector<size_t> after;
};
Event& event_of(cudaEvent_t handle) { return *reinterpret_cast<Event*>(handle); }

// In a graph: every replay records the event anew.
Op external_record(Event& event) {
  Op op{"the record of an event", [] {}, {}};
  op.renew = [&event] {
    auto record = std::make_shared<Record>();
    {
      const std::lock_guard hold(mu);
      event.record = record;
    }
    return record_op(record);
  };
  return op;
}
Op external_wait(Event& event) {
  Op op{"the wait for an event", [] {}, {}};
  op.renew = [&event] {
    const std::lock_guard hold(mu);
    return event.record ? wait_op(event.record) : Op{"no wait: the event was never recorded", [] {}, {}};
  };
  return op;
}

cudaError_t record(Event& event, Stream& stream, unsigned flags) {
  if (event.device != stream.device) return cudaErrorInvalidResourceHandle;
  if (!stream.capture) {
    event.captured = false;
    event.record = push_record(stream);
    ++counters.submissions;
    return cudaSuccess;
  }
  if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (flags == cudaEventRecordExternal) return capture(stream, external_record(event));
  event.captured = true;
  event.capture = stream.capture;
  event.after = stream.captured_last;
  return cudaSuccess;
}

cudaError_t wait(Event& event, Stream& stream, unsigned flags) {
  if (flags == cudaEventWaitExternal) {
    if (!stream.capture) return cudaErrorInvalidValue;
    return capture(stream, external_wait(event));
  }
  if (event.captured) {
    const std::shared_ptr<Capture> source = event.capture.lock();
    if (!source || source->members.empty()) return cudaErrorCapturedEvent;
    return join_capture(stream, source, event.after);
  }
  if (stream.capture) return event.record ? invalidate(stream, cudaErrorStreamCaptureIsolation) : cudaSuccess;
  if (event.record) push_wait(stream, event.record);  // an event that was never recorded is no wait
  ++counters.submissions;
  return cudaSuccess;
}

}  // namespace
}  // namespace fake
using namespace fake;

extern "C" {
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  if (const cudaError_t e = unavailable()) return e;
  if (injected("cudaEventCreate")) return note(cudaErrorMemoryAllocation);
  auto* event = new Event;
  event->flags = flags;
  event->device = current_device();
  *handle = reinterpret_cast<cudaEvent_t>(event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  if (const cudaError_t e = unavailable()) return e;
  delete &event_of(handle);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned flags) {
  if (const cudaError_t e = unavailable()) return e;
  const std::lock_guard hold(mu);
  return note(record(event_of(handle), stream_of(stream), flags));
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  return cudaEventRecordWithFlags(handle, stream, cudaEventRecordDefault);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned flags) {
  if (const cudaError_t e = unavailable()) return e;
  const std::lock_guard hold(mu);
  return note(wait(event_of(handle), stream_of(stream), flags));
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (const cudaError_t e = unavailable()) return e;
  if (event_of(handle).captured) return note(cudaErrorCapturedEvent);
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  if (injected("cudaEventSynchronize")) return note(cudaErrorLaunchFailure);
  const std::shared_ptr<Record> record = event_of(handle).record;
  if (!record) return cudaSuccess;
  drive([&] { return record->done; }, "cudaEventSynchronize");
  cuemu::tsan_acquire(&record->token);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  if (const cudaError_t e = unavailable()) return e;
  if (event_of(handle).captured) return note(cudaErrorCapturedEvent);
  if (const cudaError_t e = forbidden_in_capture()) return note(e);
  const std::shared_ptr<Record> record = event_of(handle).record;
  if (!record) return cudaSuccess;
  perhaps_step();
  {
    const std::lock_guard hold(mu);
    if (!record->done) return note(cudaErrorNotReady);
  }
  cuemu::tsan_acquire(&record->token);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (const cudaError_t e = unavailable()) return e;
  const Event &a = event_of(from), &b = event_of(to);
  if (a.captured || b.captured) return note(cudaErrorCapturedEvent);
  const bool timed = !((a.flags | b.flags) & cudaEventDisableTiming);
  if (!a.record || !b.record || !timed) return note(cudaErrorInvalidResourceHandle);
  const std::lock_guard hold(mu);
  if (!a.record->done || !b.record->done) return note(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(b.record->at - a.record->at).count();
  return cudaSuccess;
}
}
