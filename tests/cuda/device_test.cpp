// A GPU as a device: scratch of lanes, events between lanes and to the host. The order of streams that no event orders
// is drawn by a seed.
#include <catch2/catch.hpp>
#include <cstring>

#include "core/ops/control.h"
#include "core/ops/elementwise.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/kernels.h"
#include "tests/support/cuda/schedule.h"

using namespace trainer;
using namespace trainer::cuda;

namespace {

constexpr Lane kPing = Lane::compute, kPong = Lane::reduce;
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
  for (int run = 0; run < 3; ++run) {
    test::test_schedule(run);
    Gpu gpu;
    Stream& lane = gpu.device.lane(kPong);
    float* told = reinterpret_cast<float*>(gpu.device.page().data());
    *told = 3;
    const auto tell = [&] {
      const auto stream = static_cast<cudaStream_t>(lane.native());
      REQUIRE(cudaMemcpyAsync(told, gpu.x.data, sizeof *told, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
      return lane.record();
    };
    cuda::run(lane, Upload{gpu.x, gpu.device.page().data()});
    cuda::run(lane, Scale{gpu.x, 2});
    const Event first = tell();
    for (size_t e = 1; e < kEvents; ++e) {
      cuda::run(lane, Scale{gpu.x, 2});
      tell();
    }
    gpu.device.wait(first);
    REQUIRE(*told == 6);
    gpu.device.drain();
    REQUIRE(*told == 48);
  }
  test::test_schedule(0);
}

TEST_CASE("a note is read after what the lane does before it") {
  Gpu gpu;
  Stream& lane = gpu.device.lane(kPong);
  const Tensor outcome = make_tensor(gpu.arena.data() + 3584, DType::f64, {sizeof(Outcome) / sizeof(double)});
  auto& page = *new (gpu.device.page().data()) HostPage;
  double source = 5;
  const auto later = [](void* to) { *static_cast<double*>(to) = 6; };
  const auto read = [](const void* from, int64_t, Outcome& o) { o.loss_sum = *static_cast<const double*>(from); };
  REQUIRE(cudaLaunchHostFunc(static_cast<cudaStream_t>(lane.native()), later, &source) == cudaSuccess);
  cuda::run(lane, Note{{read, &source, 0}, page.notes.data(), outcome});
  cuda::run(lane, Tell{&page.outcome, outcome});
  gpu.device.wait(lane.record());
  REQUIRE(page.outcome.loss_sum == 6);
}
