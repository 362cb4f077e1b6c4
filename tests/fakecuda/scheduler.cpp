#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "tests/cuemu/random.h"
#include "tests/fakecuda/capture.h"
#include "tests/fakecuda/errors.h"
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/stream.h"

namespace fake {

QuietLock mu;
Counters counters{};

namespace {

using Clock = std::chrono::steady_clock;

cuemu::Random& random() {
  static cuemu::Random r = [] {
    cuemu::Random first;
    first.seed(first_seed());
    return first;
  }();
  return r;
}

// Under the thread sanitizer an operation runs on the stream's own fiber: what two streams do is ordered by events
// alone, although one host thread runs both.
constexpr size_t kStackBytes = 1u << 20;
thread_local struct {
  cuemu::HostContext host;
  Stream* stream = nullptr;
  Op* op = nullptr;
} on_stream;

void stream_main() {
  cuemu::Fiber::arrived(on_stream.host);
  cuemu::tsan_acquire(&on_stream.stream->token);  // the submission comes before
  on_stream.op->run();
  *on_stream.op = {};  // what the closure holds goes in the stream's own order
  on_stream.stream->fiber.leave(on_stream.host);
}
void run(Stream& stream, Op& op) {
  if (!cuemu::kThreadSanitizer) return op.run();
  on_stream.stream = &stream;
  on_stream.op = &op;
  stream.fiber.start(stream_main, kStackBytes);
  stream.fiber.enter(on_stream.host);
}

// Runs one operation of those that can run; false when there is none.
bool step(std::unique_lock<QuietLock>& hold, bool& others_running) {
  Stream* chosen = nullptr;
  uint32_t ready = 0;
  others_running = false;
  for (Stream* s : streams()) {
    if (s->running) {
      others_running = true;
    } else if (!s->queue.empty() && (!s->queue.front().ready || s->queue.front().ready())) {
      if (random().below(++ready) == 0) chosen = s;
    }
  }
  if (!chosen) return false;
  chosen->running = true;
  Op op = std::move(chosen->queue.front());
  open_device_memory();
  hold.unlock();
  run(*chosen, op);
  op = {};
  hold.lock();
  close_device_memory();
  chosen->queue.pop_front();
  chosen->running = false;
  ++counters.ops;
  return true;
}

[[noreturn]] void report_hang(const char* why) {
  std::string blocked;
  for (size_t i = 0; i < streams().size(); ++i) {
    const Stream& s = *streams()[i];
    if (!s.queue.empty())
      blocked += "\n  stream " + std::to_string(i) + " (device " + std::to_string(s.device) +
                 ") stands at: " + s.queue.front().what;
  }
  fail("hang: no operation can run while the host waits in %s; blocked streams:%s", why,
       blocked.empty() ? " none (others never submitted their part)" : blocked.c_str());
}

}  // namespace

Stream::Stream() {
  if (cuemu::kThreadSanitizer) fiber.create(kStackBytes);
}

uint32_t rnd() { return random().next(); }
void set_seed(uint64_t seed) {
  const std::lock_guard hold(mu);
  random().seed(seed);
}

std::vector<Stream*>& streams() {
  static std::vector<Stream*> all;
  return all;
}

void drive(const std::function<bool()>& done, const char* why) {
  std::unique_lock hold(mu);
  ++counters.host_waits;
  open_device_memory();  // for all of it: opening costs more than most operations
  Clock::time_point progress = Clock::now();
  uint64_t seen = counters.ops;
  while (!done()) {
    bool others_running = false;
    if (step(hold, others_running)) {
      progress = Clock::now();
      continue;
    }
    hold.unlock();
    constexpr useconds_t kNap = 50;  // until another thread submits or finishes something
    usleep(kNap);
    hold.lock();
    if (counters.ops != seen || others_running) progress = Clock::now();
    seen = counters.ops;
    if (std::chrono::duration<double>(Clock::now() - progress).count() > hang_seconds()) report_hang(why);
  }
  close_device_memory();
}

void perhaps_step() {
  std::unique_lock hold(mu);
  bool others_running = false;
  if (random().next() & 1) step(hold, others_running);
}

void finish(Stream& stream, const char* why) {
  const auto alive = [&] { return std::find(streams().begin(), streams().end(), &stream) != streams().end(); };
  drive([&] { return !alive() || stream.idle(); }, why);  // another thread may destroy it meanwhile
  const std::lock_guard hold(mu);
  if (alive()) stream.fiber.join();
}

void finish_device(const char* why) {
  std::vector<Stream*> of_device;
  {
    const std::lock_guard hold(mu);
    for (Stream* s : streams())
      if (s->device == current_device()) of_device.push_back(s);
  }
  for (Stream* s : of_device) finish(*s, why);
}

void push(Stream& stream, Op op) {
  cuemu::tsan_release(&stream.token);
  stream.queue.push_back(std::move(op));
}

cudaError_t enqueue(cudaStream_t handle, Op op) {
  if (in_host_function()) fail("a host function of a stream calls CUDA (%s)", op.what);
  if (const cudaError_t e = unavailable()) return e;
  std::shared_ptr<std::atomic<bool>> finished;
  {
    const std::lock_guard hold(mu);
    Stream& stream = stream_of(handle);
    if (stream.capture) return note(capture(stream, std::move(op)));
    if (!handle && breaks_a_capture(stream.device)) return note(cudaErrorStreamCaptureImplicit);
    ++counters.submissions;
    if (eager() && !op.ready) {
      finished = std::make_shared<std::atomic<bool>>(false);
      op.run = [finished, first = std::move(op.run)] {
        first();
        *finished = true;
      };
    }
    push(stream, std::move(op));
  }
  if (finished) drive([&] { return finished->load(); }, "an eager submission");
  return cudaSuccess;
}

Op record_op(std::shared_ptr<Record> record) {
  return {"the record of an event",
          [record] {
            cuemu::tsan_release(&record->token);
            const std::lock_guard hold(mu);
            record->done = true;
            record->at = Clock::now();
          },
          {}};
}
Op wait_op(std::shared_ptr<Record> record) {
  return {"the wait for an event", [record] { cuemu::tsan_acquire(&record->token); },
          [record] { return record->done; }};
}
std::shared_ptr<Record> push_record(Stream& stream) {
  auto record = std::make_shared<Record>();
  push(stream, record_op(record));
  return record;
}
void push_wait(Stream& stream, std::shared_ptr<Record> record) { push(stream, wait_op(std::move(record))); }

}  // namespace fake
