// Streams and the scheduler that runs them. Everything here is called with `mu` held unless it says otherwise.
#pragma once
#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "tests/cuemu/fiber.h"
#include "tests/cuemu/quiet_lock.h"
#include "tests/fakecuda/fake_cuda.h"

namespace fake {

struct Capture;

// One cudaEventRecord: waits refer to it, not to the event, which may be recorded again.
struct Record {
  bool done = false;
  std::chrono::steady_clock::time_point at;
  char token = 0;  // of the thread sanitizer
};

struct Stream {
  Stream();
  std::deque<Op> queue;
  bool running = false;  // its first operation
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  std::shared_ptr<Capture> capture;   // while it captures
  std::vector<size_t> captured_last;  // nodes that the next one comes after
  cuemu::Fiber fiber;                 // its own thread for the thread sanitizer
  char token = 0;

  bool idle() const { return queue.empty() && !running; }
};

extern QuietLock mu;

int current_device();  // of the calling thread
std::vector<Stream*>& streams();
// The stream of the handle, the device's own for 0. A handle that is not alive ends the process.
Stream& stream_of(cudaStream_t);

void push(Stream&, Op);
Op record_op(std::shared_ptr<Record>);
Op wait_op(std::shared_ptr<Record>);
std::shared_ptr<Record> push_record(Stream&);
void push_wait(Stream&, std::shared_ptr<Record>);

// Without `mu`: runs operations until the stream has none left; they come before what the caller does next.
void finish(Stream&, const char* why);
void finish_device(const char* why);  // the same for all streams of the current device
bool in_host_function();              // of the calling thread

// Without `mu`: perhaps runs something; for queries, which a program may repeat until they say yes.
void perhaps_step();

}  // namespace fake
