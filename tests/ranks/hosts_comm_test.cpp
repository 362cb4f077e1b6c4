// Groups that span hosts. Ranks are threads, and which host a rank lies on is the test's choice; the network is the
// loopback device.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "parallel/comm/hosts_comm.h"
#include "parallel/comm/partial_sums.h"
#include "tests/ranks/comm_cases.h"

using namespace trainer;
using Clock = std::chrono::steady_clock;

namespace {

using Hosts = std::vector<int>;  // by rank

std::vector<int> ranks_like(const Hosts& hosts, int rank) {
  std::vector<int> ranks;
  for (size_t r = 0; r < hosts.size(); ++r)
    if (hosts[r] == hosts[size_t(rank)]) ranks.push_back(int(r));
  return ranks;
}

class HostsRank : public TestRank {
 public:
  HostsRank(Exchange& exchange, const Hosts& hosts, size_t bytes = size_t{8} << 20)
      : TestRank(exchange, ranks_like(hosts, exchange.rank()), 0, bytes),
        hosts_(hosts),
        network_(exchange, world(), "127.0.0.1") {}
  std::unique_ptr<Comm> comm(Lane lane = Lane::compute) {
    const int slot = shm::axis_slot(Axis::world, lane);
    const GroupName group{"world", rank(), all(int(hosts_.size()))};
    const HostsComm::Place place{
        {std::string(name_of(lane)), slot, slot, 0}, lane, lane, traffic().entry(Axis::world, lane)};
    return std::make_unique<HostsComm>(world(), network_, group, host_spans(group, hosts_), place);
  }
  Port& port() { return network_.port(Lane::compute); }
  // What draining the lanes throws; told to the others, as a run does.
  std::string error(Exchange& exchange) {
    try {
      drain();
    } catch (const Error& e) {
      exchange.leave(e.what());
      return e.what();
    }
    return "no error";
  }

 private:
  const Hosts hosts_;
  Network network_;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// All ranks issue; all get an error with these parts within a second.
void expect_named(const Hosts& hosts, const std::vector<std::string>& parts,
                  const std::function<void(HostsRank&, Comm&)>& issue) {
  run_ranks(int(hosts.size()), [&](Exchange& exchange) {
    HostsRank rank(exchange, hosts);
    const auto comm = rank.comm();
    comm->barrier(rank.lane());
    rank.drain();
    const auto start = Clock::now();
    issue(rank, *comm);
    const std::string found = rank.error(exchange);
    for (const std::string& part : parts) expect(found.find(part) != found.npos, "lacks '" + part + "': " + found);
    expect(seconds_since(start) < 1.5 * kPatience, "took longer than a second");
  });
}

}  // namespace

TEST_CASE("every operation over hosts gives the bits of the reference: even and uneven hosts, dtypes, odd sizes") {
  for (const Hosts& hosts : {Hosts{0, 1}, {0, 1, 1, 1}, {0, 0, 1, 2}, {0, 0, 1, 1}, {0, 1, 2}})
    run_ranks(int(hosts.size()), [&](Exchange& exchange) {
      HostsRank rank(exchange, hosts);
      const auto comm = rank.comm();
      test_every_operation(rank, *comm, {1, 65, 4099});
    });
}

TEST_CASE(
    "tensors of many chunks keep the order of the sum, and go round hosts of unlike size without waiting for ever") {
  for (const Hosts& hosts : {Hosts{0, 1, 1, 1}, {0, 0, 1, 2}})
    run_ranks(int(hosts.size()), [&](Exchange& exchange) {
      HostsRank rank(exchange, hosts, size_t{64} << 20);
      const auto comm = rank.comm();
      for (const DType dtype : {DType::f32, DType::bf16}) {
        rank.reset();
        comm->barrier(rank.lane());
        rank.drain();
        test_all_reduce(rank, *comm, dtype, 800'001);
        test_reduce_scatter(rank, *comm, dtype, 300'001, true);
        test_all_gather(rank, *comm, dtype, 500'003, true);
        test_messages(rank, *comm, dtype, 200'001);
      }
    });
}

TEST_CASE("two lanes at once over hosts never mix") {
  const Hosts hosts{0, 0, 1, 2};
  run_ranks(4, [&](Exchange& exchange) {
    HostsRank rank(exchange, hosts);
    const auto a = rank.comm(Lane::reduce), b = rank.comm(Lane::gather);
    const Tensor sums = rank.take(DType::f32, 1000), full = rank.take(DType::bf16, 4 * 500);
    fill(sums, rank.rank());
    const Tensor shard = flat_part(full, 500 * rank.rank(), 500 * (rank.rank() + 1));
    fill(shard, rank.rank());
    for (int turn = 0; turn < 40; ++turn) {
      a->all_reduce(rank.lane(Lane::reduce), sums, Comm::Reduce::max);
      b->all_gather(rank.lane(Lane::gather), shard, full);
    }
    rank.drain();
    expect_equal(sums, "all_reduce", [&](int64_t i) { return reduced(DType::f32, 4, i, Comm::Reduce::max); });
  });
}

TEST_CASE("operations that differ between hosts are named on every rank") {
  const Hosts hosts{0, 0, 1};
  expect_named(hosts, {"does all_reduce sum of 64 bytes f32", "rank 2 does barrier", "operation 2"},
               [](HostsRank& rank, Comm& comm) {
                 if (rank.rank() < 2) comm.all_reduce(rank.lane(), rank.take(DType::f32, 16));
                 else comm.barrier(rank.lane());
               });
  expect_named(hosts, {"all_reduce sum of 64 bytes f32", "rank 2 does all_reduce sum of 64 bytes bf16"},
               [](HostsRank& rank, Comm& comm) {
                 if (rank.rank() < 2) comm.all_reduce(rank.lane(), rank.take(DType::f32, 16));
                 else comm.all_reduce(rank.lane(), rank.take(DType::bf16, 32));
               });
  expect_named({0, 1}, {"rank 0 does send of 64 bytes f32", "rank 1 does receive of 32 bytes f32"},
               [](HostsRank& rank, Comm& comm) {
                 if (rank.rank() == 0) comm.send(rank.lane(), rank.take(DType::f32, 16), 1);
                 else comm.recv(rank.lane(), rank.take(DType::f32, 8), 0);
                 comm.barrier(rank.lane());  // a small message leaves its sender at once
               });
  expect_named({0, 1}, {"rank 0 does receive of 64 bytes f32", "rank 1 does receive of 64 bytes f32"},
               [](HostsRank& rank, Comm& comm) { comm.recv(rank.lane(), rank.take(DType::f32, 16), 1 - rank.rank()); });
}

TEST_CASE("a rank that gives up, and an abort from another thread, end all waits on all hosts") {
  for (const bool gives_up : {true, false}) {
    std::atomic<int64_t> when{0};
    const auto now = [] { return Clock::now().time_since_epoch().count(); };
    run_ranks(4, [&](Exchange& exchange) {
      auto rank = std::make_unique<HostsRank>(exchange, Hosts{0, 0, 1, 2});
      const auto comm = rank->comm();
      comm->barrier(rank->lane());
      rank->drain();
      exchange.all_gather("ready");
      if (rank->rank() == 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        when = now();
        if (gives_up) return exchange.leave("rank 3 gave up: disk full");
        std::thread([&] { comm->abort(); }).join();
      }
      comm->all_reduce(rank->lane(), rank->take(DType::f32, 100'000));
      const std::string found = rank->error(exchange);
      expect(found.find(gives_up ? "disk full" : "rank 3 aborted") != found.npos, found);
      expect(double(now() - when) < 5e8 * kPatience, "took longer than it should");
    });
  }
}

TEST_CASE("a message leaves though its receiver's lane has not come yet") {
  run_ranks(2, [](Exchange& exchange) {
    HostsRank rank(exchange, Hosts{0, 1});
    const Tensor message = rank.take(DType::f32, 10);
    const MessageHeader header{.bytes = message.bytes(), .part_bytes = message.bytes()};
    const RemotePort other{1 - rank.rank(), Lane::compute};
    if (rank.rank() == 0) {
      fill(message, 0);
      rank.port().wait(rank.port().begin_send(other, header, message.data), "world");
      rank.port().flush("world");
      exchange.all_gather("sent");
      return;
    }
    exchange.all_gather("sent");
    rank.port().wait(rank.port().begin_receive(other, header, message.data), "world");
    expect_equal(message, "the message", [](int64_t i) { return rounded(DType::f32, value(DType::f32, 0, i)); });
  });
}

TEST_CASE("a message to a rank whose connection broke while another was awaited waits for the word of why") {
  using std::this_thread::sleep_for, std::chrono::milliseconds;
  run_ranks(3, [](Exchange& exchange) {
    auto rank = std::make_unique<HostsRank>(exchange, Hosts{0, 1, 2});
    auto comm = rank->comm();
    comm->barrier(rank->lane());
    rank->drain();
    exchange.all_gather("ready");
    if (rank->rank() == 1) {
      rank->world().abort("silent");  // known on its own host only
      comm.reset();
      rank.reset();
      sleep_for(milliseconds(600));
      return exchange.leave("disk full");
    }
    if (rank->rank() == 2) {
      sleep_for(milliseconds(300));
      comm->send(rank->lane(), rank->take(DType::f32, 16), 0);
    } else {
      comm->recv(rank->lane(), rank->take(DType::f32, 16), 2);
      comm->send(rank->lane(), rank->take(DType::f32, 16), 1);
    }
    comm->barrier(rank->lane());
    const std::string found = rank->error(exchange);
    expect(found.find("disk full") != found.npos, found);
  });
}

TEST_CASE("a host that does not hold neighbouring ranks is refused") {
  const GroupName group{"dp of rank 0", 0, {0, 2, 4, 6}};
  REQUIRE(host_spans(group, {0, 0, 0, 0, 1, 1, 1, 1}).size() == 2);
  REQUIRE_THROWS_WITH(host_spans(group, {0, 0, 1, 1, 0, 0, 1, 1}), Catch::Contains("parallel.order"));
}
