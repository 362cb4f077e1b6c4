// Ranks that disagree, give up or die, and what NCCL reports: an error that says so on every rank, never a hang.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/cuda/nccl_rank.h"
#include "tests/fakecuda/nccl_shim.h"

using namespace trainer;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    expect(e.code() == Exit::rank, "an error of another kind");
    return e.what();
  }
  return "no error";
}
void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

}  // namespace

TEST_CASE("an abort from another thread lets the streams of its rank go on at once, and says why") {
  const GpuWorld world{.shape = {.dp = 3, .zero = 1}};
  run_ranks(3, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    GpuGroups& groups = rank.open();
    Comm& comm = groups.on(Axis::world, Lane::compute);
    exchange.all_gather("ready");
    if (rank.rank() == 1) {
      comm.all_reduce(rank.lane(), rank.take(DType::f32, 1000));  // nobody else comes
      Clock::time_point when;
      std::thread other([&] {
        pause(100);
        when = Clock::now();
        comm.abort();
      });
      const std::string error = error_of([&] { rank.drain(); });
      other.join();
      expect(seconds_since(when) < 0.1, "took longer than it should");
      expect_contains(error, {"world, lane compute", "rank 1 of it aborted"});
      groups.on(Axis::shard, Lane::reduce).abort();
      // Nothing is issued any more, and the first reason stays.
      expect_contains(error_of([&] { comm.barrier(rank.lane()); }), {"world, lane compute", "rank 1 of it aborted"});
      exchange.leave(error);
    } else {
      groups.on(Axis::shard, Lane::reduce).all_reduce(rank.lane(Lane::reduce), rank.take(DType::f32, 1000));
      expect_contains(error_of([&] { rank.drain(); }), {"rank 1 of it aborted"});
    }
  });
  REQUIRE(fakenccl::counts().alive == 0);
}

TEST_CASE("a rank that gives up, or throws, ends the waits of all others with its reason") {
  for (const bool throws : {false, true}) {
    const GpuWorld world{.shape = {.dp = 2}, .tp = 2};
    std::atomic<int64_t> when{0};
    const auto now = [] { return Clock::now().time_since_epoch().count(); };
    const auto ranks = [&](Exchange& exchange) {
      GpuRank rank(exchange, world);
      GpuGroups& groups = rank.open();
      exchange.all_gather("ready");
      if (rank.rank() == 3) {
        pause(100);
        when = now();
        if (throws) fail(Exit::disk, "rank 3 found its disk full");
        exchange.leave("rank 3 found its disk full");
        groups.on(Axis::world, Lane::compute).abort();
        return;
      }
      // Rank 3 is in the first group of rank 2 and in the second of rank 1; rank 0 waits for neither.
      groups.on(Axis::tp, Lane::compute).all_reduce(rank.lane(), rank.take(DType::f32, 1000));
      groups.on(Axis::dp, Lane::reduce).all_reduce(rank.lane(Lane::reduce), rank.take(DType::f32, 1000));
      groups.on(Axis::world, Lane::compute).barrier(rank.lane());
      expect_contains(error_of([&] { rank.drain(); }), {"disk full"});
      expect(double(now() - when) < 5e8, "took longer than it should");
    };
    if (throws) REQUIRE_THROWS_WITH(run_ranks(4, ranks), Catch::Contains("disk full"));
    else run_ranks(4, ranks);
    REQUIRE(fakenccl::counts().alive == 0);
    REQUIRE(fakenccl::counts().registered == 0);
  }
}

TEST_CASE("what NCCL reports while nobody calls it is found, and names the group") {
  const GpuWorld world{.shape = {.dp = 2}, .tp = 2};
  run_ranks(4, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    GpuGroups& groups = rank.open();
    exchange.all_gather("ready");
    Comm& comm = groups.on(Axis::tp, Lane::reduce);
    if (rank.rank() != 2) comm.all_reduce(rank.lane(Lane::reduce), rank.take(DType::f32, 100));
    if (rank.rank() == 3) fakenccl::fail_async("tp of rank 2, lane reduce", 1, ncclRemoteError);
    if (rank.rank() == 2) pause(150);
    const std::string error = error_of([&] {
      for (int i = 0; i < 200; ++i) {
        rank.drain();
        pause(10);
      }
    });
    expect_contains(error, {"rank 3, tp of rank 2, lane reduce", "remote process exited"});
    exchange.leave(error);
  });
  REQUIRE(fakenccl::counts().alive == 0);
}

TEST_CASE("an error that a call returns names the group, the operation and what NCCL said") {
  const GpuWorld world = one_axis(2);
  run_ranks(2, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    Comm& comm = rank.open().on(Axis::world, Lane::compute);
    exchange.all_gather("ready");
    const Tensor t = rank.take(DType::f32, 16);
    // A call that NCCL has not ended is the only one at a time: this one never ends well.
    if (rank.rank() == 0) fakenccl::fail_async("world, lane compute", 0, ncclInternalError);
    const std::string error = error_of([&] {
      for (int i = 0; i < 1000; ++i) {
        comm.all_reduce(rank.lane(), t);
        rank.drain();
      }
    });
    expect_contains(error, {"rank 0, world, lane compute: ", "internal error"});
    exchange.leave(error);
  });
}

TEST_CASE("versions that differ are named with the ranks and their GPUs; an old one is refused") {
  const GpuWorld world = one_axis(3);
  run_ranks(3, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    NcclOptions options = rank.options();
    options.gpu = fmt::format("GPU {} of host n{}", rank.rank(), rank.rank());
    if (rank.rank() == 2) fakenccl::set_version(22703);
    const std::string error = error_of([&] { rank.open(options); });
    const std::string ours = fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    expect_contains(error,
                    {"rank 0 (GPU 0 of host n0) has NCCL", ours.c_str(), "rank 2 (GPU 2 of host n2) has 2.27.3"});
  });
  run_ranks(2, [&](Exchange& exchange) {
    const GpuWorld pair = one_axis(2);
    GpuRank rank(exchange, pair);
    fakenccl::set_version(21903);
    const std::string error = error_of([&] { rank.open(); });
    expect_contains(error, {"2.22.0 or newer", "2.19.3"});
    exchange.leave(error);
  });
}

TEST_CASE("two ranks on one GPU are named before NCCL is asked; what NCCL says of them is an error too") {
  const GpuWorld world = one_axis(3);
  run_ranks(3, [&](Exchange& exchange) {
    GpuRank rank(exchange, world);
    NcclOptions options = rank.options();
    options.gpu = rank.rank() == 2 ? "GPU 0 of host a" : fmt::format("GPU {} of host a", rank.rank());
    expect_contains(error_of([&] { rank.open(options); }), {"ranks 0 and 2 are both on GPU 0 of host a"});
  });
  run_ranks(2, [&](Exchange& exchange) {
    const GpuWorld pair = one_axis(2);
    GpuRank rank(exchange, pair);
    cuda_expect(cudaSetDevice(0));
    expect_contains(error_of([&] { rank.open(); }), {"world, lane compute: opening: invalid usage"});
    exchange.all_gather("over");
  });
  REQUIRE(fakenccl::counts().alive == 0);
}

TEST_CASE("a rank that dies while groups are opened ends the opening of the others") {
  for (const bool introduced : {false, true}) {
    const GpuWorld world = one_axis(3);
    const auto start = Clock::now();
    run_ranks(3, [&](Exchange& exchange) {
      GpuRank rank(exchange, world);
      if (rank.rank() == 2) {
        if (introduced) exchange.all_gather(fmt::format("{}.{}.{}\n\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
        exchange.leave("rank 2 died");
        return;
      }
      expect_contains(error_of([&] { rank.open(); }), {"rank 2 died"});
    });
    REQUIRE(seconds_since(start) < 2);
    REQUIRE(fakenccl::counts().alive == 0);
  }
}
