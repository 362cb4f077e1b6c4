// NCCL for ranks that are threads of one process: what tests may ask of it and do to it. The functions themselves are
// those of <nccl.h>.
//
// As strict as NCCL is at its worst: nothing is buffered, so a send ends when it is received; a non-blocking call is
// under way until somebody asks (ncclCommGetAsyncError), several times where connections are made, and only then is on
// its stream; a split fills the child's pointer when its parent is asked. Stricter than NCCL: operations that differ
// between ranks, buffers outside of device memory or that overlap, communicators used after their end, ended with
// operations under way, in a graph, with registered buffers or before their children, end the process with a sentence.
// After an abort a stream goes on, with NaN where the result would be, and the other ranks still wait; the abort itself
// ends when the graphs are gone that hold operations of the communicator.
//
// Sums start at a rank that depends on the element, and round to the tensor's dtype at every addition. The order is
// fixed: element and number of ranks decide. FAKENCCL_RANDOM_ORDER=seed draws it for every run of elements instead.
#pragma once
#include <nccl.h>

#include <string_view>

namespace fakenccl {

// The communicator of that name and rank reports `error` from now on.
void fail_async(std::string_view name, int rank, ncclResult_t error);
// What ncclGetVersion says on this thread; 0: the header's version.
void set_version(int code);

struct Counts {
  int alive = 0, registered = 0;  // communicators, buffers: now
  int collectives = 0, messages = 0, aborted = 0, answered_in_progress = 0;
};
Counts counts();

}  // namespace fakenccl
