// Ranks that disagree, give up, or die: an error that says so on all others, never a hang.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "parallel/comm/shm_groups.h"
#include "tests/ranks/ranks_comm.h"

using namespace trainer;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What draining the rank's lanes throws.
std::string error_of(TestRank& rank) {
  try {
    rank.drain();
  } catch (const Error& e) {
    expect(e.code() == Exit::rank, "an error of another kind");
    return e.what();
  }
  return "no error";
}
// All ranks issue; all get an error with these parts within a second.
void expect_named(int n, std::initializer_list<const char*> parts, const std::function<void(TestRank&, Comm&)>& issue) {
  run_ranks(n, [&](Exchange& exchange) {
    TestRank rank(exchange);
    const auto comm = rank.comm(n);
    exchange.all_gather("ready");
    const auto start = Clock::now();
    issue(rank, *comm);
    expect_contains(error_of(rank), parts);
    expect(seconds_since(start) < 1.5 * kPatience, "took longer than a second");
    exchange.all_gather("over");
  });
}

// Ranks of forked processes: introductions through a shared page, deaths seen by a pidfd.
struct Page {
  std::atomic<int> arrived[8];
  char said[8][3][128];
  std::atomic<int> pids[8];
};
class ForkExchange final : public Exchange {
 public:
  ForkExchange(Page& page, int rank, int size) : page_(page), rank_(rank), size_(size) { page.pids[rank] = getpid(); }
  ~ForkExchange() override {
    over_ = true;
    for (std::thread& t : watchers_) t.join();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> all_gather(std::string_view mine) override {
    mine.copy(page_.said[rank_][round_], mine.size());
    ++page_.arrived[rank_];
    std::vector<std::string> heard;
    for (int r = 0; r < size_; ++r) {
      while (page_.arrived[r] <= round_) usleep(200);
      heard.emplace_back(page_.said[r][round_]);
    }
    ++round_;
    return heard;
  }
  void on_failure(FailureHandler handler) override {
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const int fd = int(syscall(SYS_pidfd_open, page_.pids[r].load(), 0));
      watchers_.emplace_back([this, fd, r, handler] {
        pollfd p{fd, POLLIN, 0};
        while (!over_ && poll(&p, 1, 10) == 0) continue;
        if (p.revents) handler(fmt::format("rank {} died", r));
        close(fd);
      });
    }
  }
  void leave(std::string_view) noexcept override {}

 private:
  Page& page_;
  const int rank_, size_;
  int round_ = 0;
  std::atomic<bool> over_{false};
  std::vector<std::thread> watchers_;
};

// Reduces until somebody dies; 0 where the error named rank 1.
int reduce_until_death(Page& page, int rank, int size) {
  ForkExchange exchange(page, rank, size);
  TestRank self(exchange, 0, size_t{4} << 20);
  const auto comm = self.comm(size);
  const Tensor t = self.take(DType::f32, 500000);
  std::memset(t.data, 0, t.bytes());
  exchange.all_gather("ready");
  try {
    for (;;) {
      comm->all_reduce(self.lane(), t);
      self.drain();
    }
  } catch (const Error& e) { return std::string(e.what()).find("rank 1 died") != std::string::npos ? 0 : 2; }
}

}  // namespace

TEST_CASE("operations, bytes, dtypes or orders that differ are named on every rank") {
  expect_named(2, {"rank 0 does all_reduce sum of 64 bytes f32", "rank 1 does barrier", "operation 1"},
               [](TestRank& rank, Comm& comm) {
                 if (rank.rank() == 0) comm.all_reduce(rank.lane(), rank.take(DType::f32, 16));
                 else comm.barrier(rank.lane());
               });
  expect_named(
      3, {"does all_reduce sum of 64 bytes f32", "rank 2 does all_reduce sum of 128 bytes f32", "world, lane compute"},
      [](TestRank& rank, Comm& comm) {
        comm.all_reduce(rank.lane(), rank.take(DType::f32, rank.rank() == 2 ? 32 : 16));
      });
  expect_named(2, {"rank 0 does all_reduce sum of 64 bytes f32", "rank 1 does all_reduce sum of 64 bytes bf16"},
               [](TestRank& rank, Comm& comm) {
                 if (rank.rank() == 0) comm.all_reduce(rank.lane(), rank.take(DType::f32, 16));
                 else comm.all_reduce(rank.lane(), rank.take(DType::bf16, 32));
               });
  expect_named(2, {"operation 2", "rank 0 does all_reduce max", "rank 1 does all_reduce sum"},
               [](TestRank& rank, Comm& comm) {
                 const Tensor t = rank.take(DType::i32, 16);
                 comm.barrier(rank.lane());
                 comm.all_reduce(rank.lane(), t, rank.rank() == 0 ? Comm::Reduce::max : Comm::Reduce::sum);
                 comm.all_reduce(rank.lane(), t, rank.rank() == 1 ? Comm::Reduce::max : Comm::Reduce::sum);
               });
  expect_named(2, {"rank 0 does send of 64 bytes f32", "rank 1 does receive of 32 bytes f32"},
               [](TestRank& rank, Comm& comm) {
                 if (rank.rank() == 0) comm.send(rank.lane(), rank.take(DType::f32, 16), 1);
                 else comm.recv(rank.lane(), rank.take(DType::f32, 8), 0);
               });
}

TEST_CASE("ranks that wait for each other in ways that never meet are named") {
  expect_named(2, {"rank 0 does all_reduce sum of 64 bytes f32", "rank 1 does send of 64 bytes f32"},
               [](TestRank& rank, Comm& comm) {
                 const Tensor t = rank.take(DType::f32, 16);
                 if (rank.rank() == 0) comm.all_reduce(rank.lane(), t);
                 else comm.send(rank.lane(), t, 0);
               });
  expect_named(2, {"rank 0 does receive of 64 bytes f32", "rank 1 does receive of 64 bytes f32"},
               [](TestRank& rank, Comm& comm) { comm.recv(rank.lane(), rank.take(DType::f32, 16), 1 - rank.rank()); });
}

TEST_CASE("two groups on one slot are named") {
  run_ranks(3, [](Exchange& exchange) {
    TestRank rank(exchange);
    const auto whole = rank.comm(3);
    const auto pair = rank.rank() < 2 ? rank.comm(2, Lane::compute, "pair") : nullptr;
    (rank.rank() == 0 ? pair : whole)->barrier(rank.lane());
    expect_contains(error_of(rank), {"in another group"});
    exchange.all_gather("over");
  });
}

TEST_CASE("row counts that disagree are named") {
  run_ranks(2, [](Exchange& exchange) {
    TestRank rank(exchange);
    const auto comm = rank.comm(2);
    const Tensor from = reshaped(rank.take(DType::f32, 16), {4, 4}), to = reshaped(rank.take(DType::f32, 16), {4, 4});
    const Tensor send = rank.take(DType::i64, 2), recv = rank.take(DType::i64, 2);
    for (int r = 0; r < 2; ++r) data_as<int64_t>(send)[r] = 1, data_as<int64_t>(recv)[r] = rank.rank() == 1 ? 2 : 1;
    comm->all_to_all_v(rank.lane(), from, to, send, recv, 4);
    expect_contains(error_of(rank), {"which expects 2"});
    exchange.all_gather("over");
  });
}

TEST_CASE("an abort from another thread, a failed rank, or one that left ends all waits at once") {
  for (const int how : {0, 1, 2}) {
    std::atomic<int64_t> when{0};
    const auto now = [] { return Clock::now().time_since_epoch().count(); };
    run_ranks(4, [&](Exchange& exchange) {
      auto rank = std::make_unique<TestRank>(exchange);
      const auto comm = rank->comm(4);
      exchange.all_gather("ready");
      if (rank->rank() == 3) {
        usleep(100000);
        when = now();
        if (how == 0) std::thread([&] { comm->abort(); }).join();
        if (how == 1) exchange.leave("rank 3 gave up: disk full");
        if (how == 2) rank.reset();  // ends in order, while others wait
        if (how == 1) return;
      } else {
        comm->all_reduce(rank->lane(), rank->take(DType::f32, 1000));
        expect_contains(error_of(*rank), {"all_reduce sum of 4000 bytes f32", how == 0   ? "rank 3 aborted"
                                                                              : how == 1 ? "disk full"
                                                                                         : "rank 3 has left"});
        expect(double(now() - when) < 5e8 * kPatience, "took longer than it should");
      }
      if (how != 1) exchange.all_gather("over");
    });
  }
}

TEST_CASE("a rank killed in a loop of all_reduces is named by the others, and nothing is left behind") {
  const auto in_shm = [] {
    return std::distance(std::filesystem::directory_iterator("/dev/shm"), std::filesystem::directory_iterator());
  };
  const auto before = in_shm();
  constexpr int kSize = 3;
  auto& page = *new (mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Page{};
  std::array<pid_t, kSize> pids{};
  for (int r = 0; r < kSize; ++r) {
    pids[size_t(r)] = fork();
    if (pids[size_t(r)] != 0) continue;
    int code = 3;
    try {
      code = reduce_until_death(page, r, kSize);
    } catch (const std::exception& e) { std::fprintf(stderr, "rank %d: %s\n", r, e.what()); }
    _exit(code);
  }
  while (page.arrived[0] < 3 || page.arrived[1] < 3 || page.arrived[2] < 3) usleep(1000);
  usleep(150000);
  kill(pids[1], SIGKILL);
  const auto start = Clock::now();
  for (int r = 0; r < kSize; ++r) {
    int status = 0;
    waitpid(pids[size_t(r)], &status, 0);
    if (r == 1) REQUIRE(WIFSIGNALED(status));
    else REQUIRE(WEXITSTATUS(status) == 0);
  }
  CHECK(seconds_since(start) < 1);
  REQUIRE(in_shm() == before);
  munmap(&page, sizeof(Page));
}

TEST_CASE("more shared memory than the system has is an error, not a signal") {
  SharedMemory memory;
  try {
    memory.reserve(size_t{1} << 50);
    FAIL("reserved a petabyte");
  } catch (const Error& e) {
    REQUIRE(e.code() == Exit::memory);
    REQUIRE_THAT(e.what(), Catch::Contains("the system has"));
  }
}

TEST_CASE("memory is zeroed, aligned, and reserved once") {
  SharedMemory memory;
  const auto arena = memory.reserve((size_t{3} << 20) + 5);
  REQUIRE(arena.size() == (size_t{3} << 20) + 5);
  REQUIRE(reinterpret_cast<uintptr_t>(arena.data()) % (size_t{2} << 20) == 0);
  REQUIRE(std::all_of(arena.begin(), arena.end(), [](std::byte b) { return b == std::byte{0}; }));
  REQUIRE_THROWS_WITH(memory.reserve(1), Catch::Contains("once"));
}
