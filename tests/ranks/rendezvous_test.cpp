#include "parallel/comm/rendezvous.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <iostream>

#include "core/base/error.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using namespace std::chrono_literals;

// A test that hangs ends the program.
class Watchdog {
 public:
  Watchdog() : thread_([this] { run(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, 20s, [&] { return done_; })) return;
    std::cerr << "a test of the rendezvous hangs\n";
    std::abort();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

uint16_t next_port() {
  static std::atomic<int> port{30000 - getpid() % 8000};
  return uint16_t(port += 8);
}
RendezvousOptions options(int world, uint16_t port, const std::string& job = "test") {
  RendezvousOptions o;
  o.world = world;
  o.host = o.coordinator = "here";
  for (int i = 0; i < 8; ++i) o.ports.push_back(uint16_t(port + i));
  o.job = job;
  o.spec = "s1";
  o.build = "b1";
  o.arrival = 5s;
  return o;
}

// Runs `body(rank)` on a thread per rank. What a rank threw, by rank; empty: nothing.
std::vector<std::string> on_ranks(int world, const std::function<void(int)>& body) {
  std::vector<std::string> thrown(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& e) { thrown[size_t(rank)] = e.code() == Exit::rank ? e.what() : "not Error(rank)"; }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}
RendezvousOptions as_rank(RendezvousOptions o, int rank) {
  o.rank = rank;
  return o;
}

TEST_CASE("all_gather tells every rank what all said, in order", "[rendezvous]") {
  const Watchdog watchdog;
  const int world = GENERATE(2, 5, 16);
  const RendezvousOptions o = options(world, next_port());
  const auto thrown = on_ranks(world, [&](int rank) {
    Rendezvous r(as_rank(o, rank));
    for (int round = 0; round < 20; ++round) {
      // Sizes from nothing to more than a socket's buffer.
      const auto share = [&](int who) {
        return std::string(size_t(who * round * (world < 16 ? 2000 : 100)), char('a' + who));
      };
      const std::vector<std::string> all = r.all_gather(share(rank));
      check(all.size() == size_t(world), Exit::usage, "size");
      for (int who = 0; who < world; ++who)
        check(all[size_t(who)] == share(who), Exit::usage, "rank {} of {}", who, world);
    }
    check(r.self().pid == getpid() && r.self().local_rank == rank && r.self().local_size == world, Exit::usage,
          "peers");
    check(r.peers()[0].address == "127.0.0.1", Exit::usage, "address");
    r.leave("");
  });
  for (const std::string& why : thrown) REQUIRE(why == "");
}

TEST_CASE("ranks of several hosts know who is on theirs", "[rendezvous]") {
  const Watchdog watchdog;
  const RendezvousOptions o = options(4, next_port());
  const char* hosts[] = {"here", "there", "here", "there"};
  const auto thrown = on_ranks(4, [&](int rank) {
    RendezvousOptions mine = as_rank(o, rank);
    mine.host = mine.machine = hosts[rank];
    mine.coordinator = rank % 2 ? "127.0.0.1" : "here";
    Rendezvous r(mine);
    check(r.self().local_rank == rank / 2 && r.self().local_size == 2, Exit::usage, "local");
    r.leave("");
  });
  for (const std::string& why : thrown) REQUIRE(why == "");
}

TEST_CASE("two jobs on the same ports do not meet, nor two restarts of one", "[rendezvous]") {
  const Watchdog watchdog;
  const uint16_t port = next_port();
  const auto thrown = on_ranks(6, [&](int thread) {
    RendezvousOptions o = as_rank(options(2, port, thread < 2 ? "a" : "b"), thread % 2);
    o.restart = thread / 4;
    Rendezvous r(o);
    const std::string me = o.job + std::to_string(o.restart);
    check(r.all_gather(me) == std::vector<std::string>{me, me}, Exit::usage, "another job's word");
    r.leave("");
  });
  for (const std::string& why : thrown) REQUIRE(why == "");
}

TEST_CASE("a port that belongs to something else is passed over", "[rendezvous]") {
  const Watchdog watchdog;
  const RendezvousOptions o = options(2, next_port());
  const Socket foreign = listen_on(o.ports[0]);
  std::atomic<bool> done{false};
  std::thread answer([&] {
    while (!done) {
      if (const Socket caller = accept_from(foreign); caller.valid()) send_frame(caller, FrameKind(77), "HTTP/1.1 400");
      std::this_thread::sleep_for(1ms);
    }
  });
  const auto thrown = on_ranks(2, [&](int rank) {
    Rendezvous r(as_rank(o, rank));
    r.leave("");
  });
  done = true;
  answer.join();
  for (const std::string& why : thrown) REQUIRE(why == "");
}

TEST_CASE("all ports taken", "[rendezvous]") {
  const Watchdog watchdog;
  RendezvousOptions o = options(2, next_port());
  o.ports.resize(1);
  Socket foreign = listen_on(o.ports[0]);
  std::thread refuse([&] {
    while (!accept_from(foreign).valid()) std::this_thread::sleep_for(5ms);
  });
  REQUIRE_THROWS_WITH(Rendezvous(o), Catch::Contains(fmt::format("port {} of host here", o.ports[0])) &&
                                         Catch::Contains("MASTER_PORT"));
  refuse.join();
}

TEST_CASE("another world, spec or build fails all ranks, and is named", "[rendezvous]") {
  const Watchdog watchdog;
  struct Case {
    std::function<void(RendezvousOptions&)> change;
    std::string wanted;
  };
  const Case c = GENERATE(Case{[](auto& o) { o.world = 4; }, "with world size 4, rank 0 (host here) with 3"},
                          Case{[](auto& o) { o.spec = "s2"; }, "with run spec s2, rank 0 (host here) with s1"},
                          Case{[](auto& o) { o.build = "b2"; }, "with build b2, rank 0 (host here) with b1"});
  const RendezvousOptions o = options(3, next_port());
  const auto thrown = on_ranks(3, [&](int rank) {
    RendezvousOptions mine = as_rank(o, rank);
    if (rank == 2) c.change(mine);
    Rendezvous r(mine);
  });
  for (const std::string& why : thrown) {
    CHECK_THAT(why, Catch::Contains("rank 2 (host here, pid"));
    CHECK_THAT(why, Catch::Contains(c.wanted));
  }
}

TEST_CASE("a rank that comes twice is named", "[rendezvous]") {
  const Watchdog watchdog;
  const int twice = GENERATE(0, 1);
  const RendezvousOptions o = options(3, next_port());
  const auto thrown = on_ranks(3, [&](int thread) {
    if (thread == 2) std::this_thread::sleep_for(100ms);
    Rendezvous r(as_rank(o, thread == 2 ? twice : thread));
  });
  for (const std::string& why : thrown)
    CHECK_THAT(why, Catch::Contains(fmt::format("two processes are rank {}", twice)));
}

TEST_CASE("ranks that never come are named when time is up", "[rendezvous]") {
  const Watchdog watchdog;
  RendezvousOptions o = options(4, next_port());
  o.arrival = 300ms;
  auto thrown = on_ranks(2, [&](int rank) { Rendezvous r(as_rank(o, rank)); });
  for (const std::string& why : thrown)
    CHECK_THAT(why, Catch::Contains("ranks 2, 3 of 4 did not come") && Catch::Contains("0.3 s"));
  thrown = on_ranks(1, [&](int) { Rendezvous r(as_rank(o, 1)); });
  CHECK_THAT(thrown[0], Catch::Contains("found no rank 0 at here") && Catch::Contains("refused"));
}

TEST_CASE("a rank that gives up is quoted to all; handlers run once, on another thread", "[rendezvous]") {
  const Watchdog watchdog;
  const int culprit = GENERATE(0, 2);
  const RendezvousOptions o = options(3, next_port());
  const auto thrown = on_ranks(3, [&](int rank) {
    std::atomic<int> calls{0};
    Rendezvous r(as_rank(o, rank));
    const auto here = std::this_thread::get_id();
    r.on_failure([&](const std::string& why) {
      if (std::this_thread::get_id() != here && why.find("gave up: the disk is full") != why.npos) ++calls;
    });
    r.all_gather("ready");
    if (rank == culprit) return r.leave("the disk is full");
    try {
      r.all_gather("on");
    } catch (const Error&) {
      const auto end = Clock::now() + 2s;
      while (calls == 0 && Clock::now() < end) std::this_thread::sleep_for(1ms);
      check(calls == 1, Exit::usage, "{} calls", calls.load());
      std::atomic<bool> late{false};
      r.on_failure([&](const std::string&) { late = true; });
      while (!late && Clock::now() < end) std::this_thread::sleep_for(1ms);
      check(late, Exit::usage, "a late handler did not run");
      throw;
    }
  });
  for (int rank = 0; rank < 3; ++rank)
    if (rank == culprit) CHECK(thrown[size_t(rank)] == "");
    else
      CHECK_THAT(
          thrown[size_t(rank)],
          Catch::Contains(fmt::format("rank {} (host here, pid {}) gave up: the disk is full", culprit, getpid())));
}

TEST_CASE("a rank that has left is named to those who wait for its word", "[rendezvous]") {
  const Watchdog watchdog;
  const int early = GENERATE(0, 1);
  const RendezvousOptions o = options(3, next_port());
  const auto thrown = on_ranks(3, [&](int rank) {
    Rendezvous r(as_rank(o, rank));
    if (rank == early) return r.leave("");
    r.all_gather("more");
  });
  for (int rank = 0; rank < 3; ++rank)
    if (rank == early) CHECK(thrown[size_t(rank)] == "");
    else
      CHECK_THAT(thrown[size_t(rank)],
                 Catch::Contains(fmt::format("rank {} (host", early)) && Catch::Contains("has left"));
}

TEST_CASE("a rank that does not take part is named when time is up", "[rendezvous]") {
  const Watchdog watchdog;
  RendezvousOptions o = options(3, next_port());
  o.exchange = 200ms;
  const auto thrown = on_ranks(3, [&](int rank) {
    Rendezvous r(as_rank(o, rank));
    if (rank == 1) std::this_thread::sleep_for(1s);
    r.all_gather("x");
  });
  for (const std::string& why : thrown) CHECK_THAT(why, Catch::Contains("rank 1 of 3 did not take part"));
}

// Ranks as processes: kill -9 is what threads cannot show.
TEST_CASE("a killed rank is known to all within milliseconds", "[rendezvous]") {
  const int victim = GENERATE(0, 1, 3);
  const RendezvousOptions o = options(4, next_port());
  int told[2];
  REQUIRE(pipe(told) == 0);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 4; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(20);
      std::string report = "none";
      try {
        Rendezvous r(as_rank(o, rank));
        r.all_gather("ready");
        if (rank == victim) {
          usleep(50'000);
          kill(getpid(), SIGKILL);
        }
        r.all_gather("never");
      } catch (const Error& e) { report = e.what(); }
      const auto now = Clock::now().time_since_epoch().count();
      const std::string line = fmt::format("{} {}\n", now, report);
      _exit(write(told[1], line.data(), line.size()) == ssize_t(line.size()) ? 15 : 1);
    }
    pids.push_back(pid);
  }
  const Watchdog watchdog;  // after the forks: a child of many threads may start none under TSan
  close(told[1]);
  waitpid(pids[size_t(victim)], nullptr, 0);
  const auto died = Clock::now();
  for (int rank = 0; rank < 4; ++rank) {
    int status = 0;
    if (rank == victim) continue;
    waitpid(pids[size_t(rank)], &status, 0);
    CHECK(WEXITSTATUS(status) == 15);
  }
  FILE* lines = fdopen(told[0], "r");
  char text[512];
  int reports = 0;
  for (; fgets(text, sizeof text, lines); ++reports) {
    const std::string line = text;
    const Clock::time_point then(Clock::duration(std::stoll(line)));
    CHECK_THAT(line, Catch::Contains(fmt::format("rank {} (host here, pid {}) died", victim, pids[size_t(victim)])));
    CHECK(then - died < 500ms);  // measured: under 10 ms; the machine that tests may be busy
  }
  fclose(lines);
  CHECK(reports == 3);
}

}  // namespace
}  // namespace trainer
