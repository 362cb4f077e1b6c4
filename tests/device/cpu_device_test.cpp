// Lanes, rings, events and the pool.
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "core/base/error.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/pool.h"

using namespace trainer;
using namespace trainer::cpu;

namespace {

struct Append {
  std::vector<int>* to;
  int value;
};
void append(Stream&, const void* args) {
  const auto& a = *static_cast<const Append*>(args);
  a.to->push_back(a.value);
}
void submit(Stream& s, std::vector<int>& to, int value) {
  const Append a{&to, value};
  s.submit(append, &a, sizeof a);
}

}  // namespace

TEST_CASE("a lane runs its commands in order, through many turns of its ring") {
  CpuDevice device({}, {}, {});
  std::vector<int> seen;
  for (int i = 0; i < 20000; ++i) submit(device.lane(Lane::load), seen, i);
  device.drain();
  std::vector<int> wanted(20000);
  std::iota(wanted.begin(), wanted.end(), 0);
  REQUIRE(seen == wanted);
}

TEST_CASE("a lane that waits for an event of another sees what was done before it, whatever the delays") {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    CpuDevice device({}, {}, {.threads = 2, .delay_seed = seed});
    std::vector<int> seen;
    for (int i = 0; i < 50; ++i) {  // turn by turn
      Stream& lane = device.lane(i % 2 ? Lane::compute : Lane::gather);
      Stream& other = device.lane(i % 2 ? Lane::gather : Lane::compute);
      lane.wait(other.record());
      submit(lane, seen, i);
    }
    device.drain();
    REQUIRE(std::is_sorted(seen.begin(), seen.end()));
    REQUIRE(seen.size() == 50);
  }
}

TEST_CASE("lanes and the host wait for different counts of one lane, and each is woken") {
  CpuDevice device({}, {}, {.delay_seed = 3});
  std::vector<int> seen, early, late;
  for (int i = 0; i < 200; ++i) {
    submit(device.lane(Lane::compute), seen, i);
    if (i == 20) device.lane(Lane::gather).wait(device.lane(Lane::compute).record());
    if (i == 150) device.lane(Lane::reduce).wait(device.lane(Lane::compute).record());
  }
  submit(device.lane(Lane::gather), early, 1);
  submit(device.lane(Lane::reduce), late, 2);
  device.wait(device.lane(Lane::gather).record());
  device.wait(device.lane(Lane::reduce).record());
  REQUIRE(early == std::vector<int>{1});
  REQUIRE(late == std::vector<int>{2});
  device.drain();
  REQUIRE(seen.size() == 200);
}

TEST_CASE("what a command throws reaches the host, and later commands are skipped") {
  CpuDevice device({}, {}, {});
  std::vector<int> seen;
  Stream& lane = device.lane(Lane::compute);
  lane.submit([](Stream&, const void*) { fail(Exit::device, "broken"); }, nullptr, 0);
  submit(lane, seen, 1);
  REQUIRE_THROWS_WITH(device.wait(lane.record()), "broken");
  REQUIRE(seen.empty());
}

TEST_CASE("the pool runs each task once and returns when all are over") {
  for (int workers : {1, 2, 5}) {
    Pool pool(workers);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> hits(97);
      pool.tasks(97, [&](int64_t task, int) { ++hits[size_t(task)]; });
      REQUIRE(std::all_of(hits.begin(), hits.end(), [](int h) { return h == 1; }));
    }
  }
}
