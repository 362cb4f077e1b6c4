// Captures and graphs of the runtime's shim.
#include <catch2/catch.hpp>

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device_memory.h"
#include "in_child.h"
#include "ptx.h"
#include "stream_log.h"
#include "tests/fakecuda/fake_cuda.h"

using namespace trainer::test;

namespace {

template <class T>
using DeviceVector = std::vector<T, DeviceAllocator<T>>;

__global__ void add(int* to, const int* what) { to[threadIdx.x] += what[threadIdx.x]; }

struct Rig {
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t fork = nullptr, join = nullptr;
  Rig() {
    for (cudaStream_t* s : {&a, &b}) REQUIRE(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking) == cudaSuccess);
    for (cudaEvent_t* e : {&fork, &join}) REQUIRE(cudaEventCreate(e) == cudaSuccess);
  }
  ~Rig() {
    for (cudaStream_t s : {a, b}) cudaStreamDestroy(s);
    for (cudaEvent_t e : {fork, join}) cudaEventDestroy(e);
    cudaGetLastError();
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) const {
    REQUIRE(cudaStreamBeginCapture(a, mode) == cudaSuccess);
  }
  cudaError_t end() const {
    cudaGraph_t graph = nullptr;
    const cudaError_t e = cudaStreamEndCapture(a, &graph);
    CHECK((graph != nullptr) == (e == cudaSuccess));
    if (graph) cudaGraphDestroy(graph);
    return e;
  }
  void record(cudaEvent_t event, cudaStream_t s) const { REQUIRE(cudaEventRecord(event, s) == cudaSuccess); }
  void wait(cudaStream_t s, cudaEvent_t event) const { REQUIRE(cudaStreamWaitEvent(s, event, 0) == cudaSuccess); }
};

}  // namespace

TEST_CASE("a graph replays kernels, copies and memsets on what memory then holds") {
  const Rig rig;
  DeviceVector<int> x{1, 2, 3, 4}, sum(4), copy(4), fresh(4);
  rig.begin();
  REQUIRE(cudaMemsetAsync(fresh.data(), 0, 16, rig.a) == cudaSuccess);
  CU_LAUNCH(add, dim3(1), dim3(4), 0, rig.a, sum.data(), static_cast<const int*>(x.data()));
  CU_LAUNCH(add, dim3(1), dim3(4), 0, rig.a, fresh.data(), static_cast<const int*>(sum.data()));
  REQUIRE(cudaMemcpyAsync(copy.data(), fresh.data(), 16, cudaMemcpyDeviceToDevice, rig.a) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(rig.a, &graph) == cudaSuccess);
  size_t nodes = 0;
  REQUIRE(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess);
  CHECK(nodes == 4);
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  cudaGraphDestroy(graph);
  REQUIRE(cudaStreamSynchronize(rig.a) == cudaSuccess);
  CHECK(sum == DeviceVector<int>(4));  // the capture ran nothing
  for (int launch = 0; launch < 3; ++launch) REQUIRE(cudaGraphLaunch(executable, rig.b) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(rig.b) == cudaSuccess);
  CHECK(copy == DeviceVector<int>{3, 6, 9, 12});
  x = {10, 10, 10, 10};
  REQUIRE(cudaGraphLaunch(executable, rig.a) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(rig.a) == cudaSuccess);
  CHECK(copy == DeviceVector<int>{13, 16, 19, 22});
  REQUIRE(cudaGraphExecDestroy(executable) == cudaSuccess);
}

TEST_CASE("a graph spreads over streams by events, and keeps only those edges") {
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    fake::set_seed(seed);
    const Rig rig;
    StreamLog log;
    rig.begin();
    log.note(rig.a, "a");
    rig.record(rig.fork, rig.a);
    rig.wait(rig.b, rig.fork);
    log.note(rig.a, "bc");
    log.note(rig.b, "uv");
    rig.record(rig.join, rig.b);
    rig.wait(rig.a, rig.join);
    log.note(rig.a, "z");
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(rig.a, &graph) == cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    cudaGraphDestroy(graph);
    for (int launch = 0; launch < 2; ++launch) REQUIRE(cudaGraphLaunch(executable, rig.a) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(rig.a) == cudaSuccess);
    const std::string text = log.text();
    REQUIRE(text.size() == 12);
    for (const std::string& replay : {text.substr(0, 6), text.substr(6)}) {
      CHECK(replay.front() == 'a');
      CHECK(comes_before(replay, 'b', 'c'));
      CHECK(comes_before(replay, 'u', 'v'));
      CHECK(replay.back() == 'z');
      seen.insert(replay);
    }
    REQUIRE(cudaGraphExecDestroy(executable) == cudaSuccess);
  }
  CHECK(seen.size() == 6);  // every interleaving of bc and uv
  fake::set_seed(1);
}

TEST_CASE("an event recorded in a graph for the outside is recorded by every replay") {
  const Rig rig;
  DeviceVector<int> x{1}, sum(1);
  rig.begin();
  CU_LAUNCH(add, dim3(1), dim3(1), 0, rig.a, sum.data(), static_cast<const int*>(x.data()));
  REQUIRE(cudaEventRecordWithFlags(rig.fork, rig.a, cudaEventRecordExternal) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(rig.a, &graph) == cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  cudaGraphDestroy(graph);
  for (int launch = 1; launch <= 2; ++launch) {
    REQUIRE(cudaGraphLaunch(executable, rig.a) == cudaSuccess);
    REQUIRE(cudaEventSynchronize(rig.fork) == cudaSuccess);
    CHECK(sum[0] == launch);
  }
  REQUIRE(cudaGraphExecDestroy(executable) == cudaSuccess);
}

TEST_CASE("an operation with a condition is made anew for every replay") {
  const Rig rig;
  int made = 0, ran = 0;
  rig.begin();
  fake::Op op{"a collective", [] {}, [] { return true; }};
  op.renew = [&] {
    ++made;
    return fake::Op{"a collective", [&] { ++ran; }, [&] { return made > 0; }};
  };
  REQUIRE(fake::enqueue(rig.a, op) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(rig.a, &graph) == cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  cudaGraphDestroy(graph);
  for (int launch = 0; launch < 2; ++launch) REQUIRE(cudaGraphLaunch(executable, rig.a) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(rig.a) == cudaSuccess);
  CHECK(made == 2);
  CHECK(ran == 2);
  REQUIRE(cudaGraphExecDestroy(executable) == cudaSuccess);
}

TEST_CASE("streams that a capture leaves out, or takes from another") {
  const Rig rig;
  DeviceVector<int> x{1};
  rig.begin();
  rig.record(rig.fork, rig.a);
  rig.wait(rig.b, rig.fork);
  REQUIRE(cudaMemsetAsync(x.data(), 0, 4, rig.b) == cudaSuccess);
  CHECK(rig.end() == cudaErrorStreamCaptureUnjoined);
  // The failed capture is over for all.
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  REQUIRE(cudaStreamIsCapturing(rig.b, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusNone);
  CHECK(cudaStreamWaitEvent(rig.b, rig.fork, 0) == cudaErrorCapturedEvent);
  CHECK(cudaEventSynchronize(rig.fork) == cudaErrorCapturedEvent);

  rig.begin();  // an event of work that is not captured
  rig.record(rig.join, rig.b);
  CHECK(cudaStreamWaitEvent(rig.a, rig.join, 0) == cudaErrorStreamCaptureIsolation);
  CHECK(rig.end() == cudaErrorStreamCaptureInvalidated);

  rig.begin();  // two captures
  REQUIRE(cudaStreamBeginCapture(rig.b, cudaStreamCaptureModeGlobal) == cudaSuccess);
  rig.record(rig.fork, rig.a);
  CHECK(cudaStreamWaitEvent(rig.b, rig.fork, 0) == cudaErrorStreamCaptureMerge);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(rig.b, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(rig.end() == cudaErrorStreamCaptureInvalidated);

  rig.begin();  // ended by a stream that only joined
  rig.record(rig.fork, rig.a);
  rig.wait(rig.b, rig.fork);
  CHECK(cudaStreamEndCapture(rig.b, &graph) == cudaErrorStreamCaptureUnmatched);
}

TEST_CASE("calls that a capture forbids, and what they do to it") {
  const Rig rig;
  int pageable = 0;
  DeviceVector<int> x{1};
  void* p = nullptr;
  const std::vector<std::function<cudaError_t()>> calls{
      [&] { return cudaStreamSynchronize(rig.a); },
      [&] { return cudaStreamQuery(rig.a); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaMalloc(&p, 16); },
      [&] { return cudaFree(x.data()); },
      [&] { return cudaMallocHost(&p, 16); },
      [&] { return cudaMemcpy(x.data(), &pageable, 4, cudaMemcpyHostToDevice); },
      [&] { return cudaMemcpyAsync(x.data(), &pageable, 4, cudaMemcpyHostToDevice, rig.a); },
      [&] { return cudaEventSynchronize(rig.join); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    INFO("call " << i);
    rig.begin();
    CHECK(calls[i]() == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaMemsetAsync(x.data(), 0, 4, rig.a) == cudaErrorStreamCaptureInvalidated);
    CHECK(rig.end() == cudaErrorStreamCaptureInvalidated);
  }
  // Other modes leave allocations alone, of other threads or altogether.
  rig.begin(cudaStreamCaptureModeThreadLocal);
  std::thread([&] { CHECK(cudaMalloc(&p, 16) == cudaSuccess); }).join();
  CHECK(rig.end() == cudaSuccess);
  rig.begin(cudaStreamCaptureModeRelaxed);
  CHECK(cudaFree(p) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported);
  CHECK(rig.end() == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
}

TEST_CASE("a capture ends in the thread that began it; the default stream stays out") {
  const Rig rig;
  rig.begin();
  std::thread([&] { CHECK(rig.end() == cudaErrorStreamCaptureWrongThread); }).join();
  CHECK(rig.end() == cudaSuccess);
  cudaStream_t blocking = nullptr;
  DeviceVector<int> x{1};
  REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaMemsetAsync(x.data(), 0, 4, nullptr) == cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
  REQUIRE(cudaStreamDestroy(blocking) == cudaSuccess);
}
