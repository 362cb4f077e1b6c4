// Streams that capture: what they are given becomes nodes of a graph. Called with `mu` held unless it says otherwise.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/fakecuda/graph.h"
#include "tests/fakecuda/stream.h"

namespace fake {

struct Capture {
  Graph graph;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;        // that began it
  std::vector<Stream*> members;  // the first began it; a member's index is its branch. None: the capture is over
  bool invalid = false;
};

cudaError_t capture(Stream&, Op);
// The stream takes part from now on, or goes on, behind the nodes `after`.
cudaError_t join_capture(Stream&, const std::shared_ptr<Capture>&, const std::vector<size_t>& after);
// The stream's capture can only be ended now, with an error. Returns `why`.
cudaError_t invalidate(Stream&, cudaError_t why);
// Whether a blocking stream of the device captures: then nothing may go to its default stream. Such captures become
// invalid.
bool breaks_a_capture(int device);
// For calls that CUDA forbids during a capture (allocations, waits, queries): an error where one is under way that the
// calling thread would break, and it becomes invalid. Without `mu`.
cudaError_t forbidden_in_capture();

}  // namespace fake
