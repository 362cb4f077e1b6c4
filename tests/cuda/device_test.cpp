// A GPU as a device: scratch of lanes, events between lanes and to the host. The order of streams that no event orders
// is drawn by a seed.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>

#include "core/ops/control.h"
#include "core/ops/elementwise.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/kernels.h"
#include "tests/support/cuda/schedule.h"

using namespace trainer;
using namespace trainer::cuda;
using Clock = std::chrono::steady_clock;

namespace {

constexpr Lane kPing = Lane::compute, kPong = Lane::reduce;
constexpr LaneMask kBoth = LaneMask(1u << unsigned(kPing) | 1u << unsigned(kPong));
constexpr size_t kEvents = 4;

// An arena of one float, at its beginning, and of scratch.
struct Gpu {
  Gpu()
      : arena(memory.reserve(4096)),
        device(arena, scratch_map(), options()),
        x(make_tensor(arena.data(), DType::f32, {1})) {}
  static ScratchMap scratch_map() {
    ScratchMap map;
    for (size_t l = 0; l < kLanes; ++l) {
      map.offset[l] = 256 * (l + 1);
      map.bytes[l] = 128 + l;
    }
    return map;
  }
  static CudaOptions options() {
    CudaOptions o;
    o.events.fill(kEvents);
    return o;
  }
  float value() {
    float v = 0;
    device.download(std::as_writable_bytes(std::span(&v, 1)), arena.data());
    return v;
  }

  CudaMemory memory;
  std::span<std::byte> arena;
  CudaDevice device;
  Tensor x;
};

}  // namespace

TEST_CASE("every lane has the scratch that the map gives it") {
  Gpu gpu;
  for (size_t l = 0; l < kLanes; ++l) {
    const std::span<std::byte> scratch = gpu.device.lane(Lane(l)).scratch();
    REQUIRE(scratch.data() == gpu.arena.data() + 256 * (l + 1));
    REQUIRE(scratch.size() == 128 + l);
  }
}

TEST_CASE("a lane finds what was uploaded before it was given anything") {
  for (int run = 0; run < 3; ++run) {
    test::test_schedule(run);
    Gpu gpu;
    Stream& lane = gpu.device.lane(kPing);
    const float one = 1;
    gpu.device.upload(gpu.arena.data(), std::as_bytes(std::span(&one, 1)));
    cuda::run(lane, Add{gpu.x, gpu.x});
    gpu.device.drain();
    REQUIRE(gpu.value() == 2);
  }
}

TEST_CASE("a lane waits for what another had recorded, for longer than the ring of events") {
  for (int run = 0; run < 3; ++run) {
    test::test_schedule(run);
    Gpu gpu;
    Stream &ping = gpu.device.lane(kPing), &pong = gpu.device.lane(kPong);
    const float one = 1;
    std::memcpy(gpu.device.page().data(), &one, sizeof one);
    cuda::run(ping, Upload{gpu.x, gpu.device.page().data()});
    for (int turn = 0; turn < 6; ++turn) {  // x = 3 x
      pong.wait(ping.record());
      cuda::run(pong, Add{gpu.x, gpu.x});
      const Event last = pong.record();
      ping.wait(last);
      cuda::run(ping, Scale{gpu.x, 1.5f});
      if (turn % 2) gpu.device.wait(last);  // a ring holds what is waited for at once
    }
    gpu.device.drain();
    REQUIRE(gpu.value() == 729);
  }
  test::test_schedule(0);
}

TEST_CASE("the host waits for an event, of a lane that nothing else waits for, and for nothing after it") {
  const bool for_host = GENERATE(false, true);
  const size_t events = for_host ? 2 : kEvents;  // as many as two plans in a row tell the host
  for (int run = 0; run < 3; ++run) {
    test::test_schedule(run);
    Gpu gpu;
    Stream& lane = gpu.device.lane(kPong);
    float* told = reinterpret_cast<float*>(gpu.device.page().data());
    *told = 3;
    const auto tell = [&] {
      const auto stream = static_cast<cudaStream_t>(lane.native());
      REQUIRE(cudaMemcpyAsync(told, gpu.x.data, sizeof *told, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
      return for_host ? lane.record_for_host() : lane.record();
    };
    cuda::run(lane, Upload{gpu.x, gpu.device.page().data()});
    cuda::run(lane, Scale{gpu.x, 2});
    const Event first = tell();
    for (size_t e = 1; e < events; ++e) {
      cuda::run(lane, Scale{gpu.x, 2});
      tell();
    }
    gpu.device.wait(first);
    REQUIRE(*told == 6);
    gpu.device.drain();
    REQUIRE(*told == (for_host ? 12 : 48));
  }
  test::test_schedule(0);
}

TEST_CASE("a graph runs behind what its lanes have, and before what they are given later") {
  for (int run = 0; run < 3; ++run) {
    test::test_schedule(run);
    Gpu gpu;
    Stream &ping = gpu.device.lane(kPing), &pong = gpu.device.lane(kPong), &other = gpu.device.lane(Lane::copy);
    const float one = 1, added = 4;
    std::memcpy(gpu.device.page().data(), &one, sizeof one);
    const Tensor four = make_tensor(gpu.arena.data() + 64, DType::f32, {1});
    gpu.device.upload(four.data, std::as_bytes(std::span(&added, 1)));
    gpu.device.begin_graph(kBoth);  // x = 4 x
    cuda::run(pong, Scale{gpu.x, 2});
    ping.wait(pong.record());
    cuda::run(ping, Scale{gpu.x, 2});
    const Event told = ping.record_for_host();
    const std::unique_ptr<Graph> graph = gpu.device.end_graph();
    const auto give = [](Stream& lane, const auto& op) {
      lane.submit([](Stream& s, const void* args) { cuda::run(s, *static_cast<decltype(&op)>(args)); }, &op, sizeof op);
    };
    give(other, Upload{gpu.x, gpu.device.page().data()});
    for (int turn = 0; turn < 2; ++turn) {  // x = 4 (4 x + 4)
      gpu.device.launch(*graph);
      give(other, Add{gpu.x, four});
      gpu.device.launch(*graph);
      gpu.device.wait(told);
    }
    give(pong, Scale{gpu.x, 0.5f});
    gpu.device.drain();
    REQUIRE(gpu.value() == 264);  // 1, 4, 8, 32; 128, 132, 528
  }
  test::test_schedule(0);
}

TEST_CASE("the compute lane says how long it waited for which lane, and what its accounts hold, in a graph as well") {
  Gpu gpu;
  Stream &compute = gpu.device.lane(Lane::compute), &other = gpu.device.lane(Lane::gather);
  constexpr double kNap = 0.002;
  constexpr int kWaitNaps = 16, kOwnNaps = 4;
  const auto nap = [](Stream& lane, int times) {
    const auto sleep = [](void*) { usleep(useconds_t(1e6 * kNap)); };
    for (int i = 0; i < times; ++i)
      REQUIRE(cudaLaunchHostFunc(static_cast<cudaStream_t>(lane.native()), sleep, nullptr) == cudaSuccess);
  };
  Event told;
  const auto give = [&] {
    other.wait(compute.record());
    compute.begin_account(kPlanAccount);
    nap(other, kWaitNaps);  // some of them before compute gets to where it waits: streams take turns by chance
    compute.wait(other.record());
    compute.begin_account(3);
    nap(compute, kOwnNaps);
    compute.end_account(3);
    told = compute.record_for_host();
    compute.end_account(kPlanAccount);
  };
  LaneTimes before;
  const auto begin = Clock::now();
  const auto check_times = [&](const std::function<void()>& step) {
    step();
    gpu.device.wait(told);
    const LaneTimes t = *gpu.device.times(Lane::compute);
    const double waited = t.waited[size_t(Lane::gather)] - before.waited[size_t(Lane::gather)],
                 own = t.accounts[3] - before.accounts[3], busy = t.busy - before.busy;
    REQUIRE(waited > kNap);  // a nap is never short
    REQUIRE(own > kNap * kOwnNaps);
    REQUIRE(busy > own);
    REQUIRE(t.busy + t.waited[size_t(Lane::gather)] < std::chrono::duration<double>(Clock::now() - begin).count());
    for (size_t l = 0; l < kLanes; ++l) REQUIRE((t.waited[l] == 0) == (Lane(l) != Lane::gather));
    before = t;
  };
  for (int step = 0; step < 2; ++step) check_times(give);
  gpu.device.begin_graph(LaneMask(1u << unsigned(Lane::compute) | 1u << unsigned(Lane::gather)));
  give();
  const std::unique_ptr<Graph> graph = gpu.device.end_graph();
  for (int step = 0; step < 2; ++step) check_times([&] { gpu.device.launch(*graph); });
}

TEST_CASE("a device whose graph was given up can be closed") {
  Gpu gpu;
  gpu.device.lane(kPong);
  gpu.device.begin_graph(kBoth);
  cuda::run(gpu.device.lane(kPong), Scale{gpu.x, 3});
}

TEST_CASE("a note is read after what the lane does before it") {
  Gpu gpu;
  Stream& lane = gpu.device.lane(kPong);
  const Tensor outcome = make_tensor(gpu.arena.data() + 3584, DType::f64, {sizeof(Outcome) / sizeof(double)});
  StepPage& page = (new (gpu.device.page().data()) HostPage)->steps[1];
  double source = 5;
  const auto later = [](void* to) { *static_cast<double*>(to) = 6; };
  const auto read = [](const void* from, int64_t, Outcome& o) { o.loss_sum = *static_cast<const double*>(from); };
  REQUIRE(cudaLaunchHostFunc(static_cast<cudaStream_t>(lane.native()), later, &source) == cudaSuccess);
  page.notes[0].call = {read, &source, 0};
  cuda::run(lane, Note{page.notes.data(), outcome});
  cuda::run(lane, Tell{&page.outcome, outcome});
  gpu.device.wait(lane.record());
  REQUIRE(page.outcome.loss_sum == 6);
}
