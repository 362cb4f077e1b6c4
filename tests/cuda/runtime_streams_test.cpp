// Streams and events of the runtime's shim: lazy, in order within, in any order between.
#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <vector>

#include "in_child.h"
#include "stream_log.h"
#include "tests/fakecuda/fake_cuda.h"

using namespace trainer::test;
using Catch::Matchers::Contains;

namespace {

struct Streams {
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr, other = nullptr;
  Streams() {
    REQUIRE(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    REQUIRE(cudaEventCreate(&other) == cudaSuccess);
  }
  ~Streams() {
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaEventDestroy(event);
    cudaEventDestroy(other);
  }
};

}  // namespace

TEST_CASE("a stream runs nothing before the host waits, and then in order") {
  Streams s;
  StreamLog log;
  log.note(s.a, "abc");
  CHECK(log.text().empty());
  REQUIRE(cudaStreamSynchronize(s.a) == cudaSuccess);
  CHECK(log.text() == "abc");
  log.note(s.a, "d");
  while (cudaStreamQuery(s.a) == cudaErrorNotReady) {}
  CHECK(log.text() == "abcd");
  CHECK(cudaGetLastError() == cudaSuccess);  // "not ready" is no error
}

TEST_CASE("streams run in an order of the seed's, events are the only edges") {
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    fake::set_seed(seed);
    Streams s;
    StreamLog log;
    log.note(s.a, "abcd");
    REQUIRE(cudaEventRecord(s.event, s.a) == cudaSuccess);
    log.note(s.a, "e");
    log.note(s.b, "uv");
    REQUIRE(cudaStreamWaitEvent(s.b, s.event, 0) == cudaSuccess);
    log.note(s.b, "wx");
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(log.only("abcde") == "abcde");
    CHECK(log.only("uvwx") == "uvwx");
    CHECK(comes_before(log.text(), 'd', 'w'));
    seen.insert(log.text());
  }
  CHECK(seen.size() > 10);
  fake::set_seed(1);
}

TEST_CASE("a wait is for the record made before it; an event never recorded is no wait") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    fake::set_seed(seed);
    Streams s;
    StreamLog log;
    REQUIRE(cudaStreamWaitEvent(s.b, s.other, 0) == cudaSuccess);
    log.note(s.b, "u");
    REQUIRE(cudaStreamSynchronize(s.b) == cudaSuccess);
    log.note(s.a, "a");
    REQUIRE(cudaEventRecord(s.event, s.a) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(s.b, s.event, 0) == cudaSuccess);
    log.note(s.b, "v");
    REQUIRE(cudaStreamWaitEvent(s.a, s.other, 0) == cudaSuccess);
    REQUIRE(cudaEventRecord(s.event, s.a) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(s.b) == cudaSuccess);
    CHECK(log.text() == "uav");
  }
  fake::set_seed(1);
}

TEST_CASE("the host waits for an event, and for no more") {
  Streams s;
  StreamLog log;
  log.note(s.a, "a");
  REQUIRE(cudaEventRecord(s.event, s.a) == cudaSuccess);
  log.note(s.a, "b");
  REQUIRE(cudaEventRecord(s.other, s.a) == cudaSuccess);
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, s.event, s.other) == cudaErrorNotReady);
  REQUIRE(cudaEventSynchronize(s.event) == cudaSuccess);
  CHECK(log.text() == "a");
  while (cudaEventQuery(s.other) == cudaErrorNotReady) {}
  CHECK(log.text() == "ab");
  CHECK(cudaEventElapsedTime(&ms, s.event, s.other) == cudaSuccess);
  CHECK(ms >= 0);
  cudaEvent_t untimed = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
  REQUIRE(cudaEventRecord(untimed, s.a) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(s.a) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&ms, s.event, untimed) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  cudaEventDestroy(untimed);
}

TEST_CASE("priorities and flags of streams") {
  int least = -1, greatest = -1;
  REQUIRE(cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess);
  CHECK(greatest < least);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 1) == cudaSuccess);
  int priority = 1;
  unsigned flags = 0;
  REQUIRE(cudaStreamGetPriority(stream, &priority) == cudaSuccess);
  REQUIRE(cudaStreamGetFlags(stream, &flags) == cudaSuccess);
  CHECK(priority == greatest);
  CHECK(flags == cudaStreamNonBlocking);
  cudaStreamDestroy(stream);
}

TEST_CASE("a wait that cannot end is reported with what each stream stands at") {
  const End end = in_child([] {
    setenv("FAKECUDA_HANG_S", "0.1", 1);
    Streams s;
    fake::enqueue(s.a, {"a collective that others never join", [] {}, [] { return false; }});
    cudaStreamSynchronize(s.a);
  });
  CHECK(end.code == fake::kWrongProgram);
  CHECK_THAT(end.message, Contains("hang: no operation can run while the host waits in cudaStreamSynchronize") &&
                              Contains("(device 0) stands at: a collective that others never join"));
}

TEST_CASE("what only a wrong program does with streams") {
  const End call = in_child([] {
    Streams s;
    cudaLaunchHostFunc(
        s.a, [](void*) { cudaMemsetAsync(nullptr, 0, 0, nullptr); }, nullptr);
    cudaStreamSynchronize(s.a);
  });
  CHECK(call.code == fake::kWrongProgram);
  CHECK_THAT(call.message, Contains("a host function of a stream calls CUDA (a memset)"));
  const End dead = in_child([] {
    cudaStream_t stream = nullptr;
    cudaStreamCreate(&stream);
    cudaStreamDestroy(stream);
    cudaStreamSynchronize(stream);
  });
  CHECK(dead.code == fake::kWrongProgram);
  CHECK_THAT(dead.message, Contains("is no stream that is alive"));
}
