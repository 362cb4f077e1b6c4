// Steps that are launched as graphs: the same bits as steps that are issued, one launch each, whatever comes in
// between.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "tests/cuda/gpu_run.h"
#include "tests/fakecuda/fake_cuda.h"
#include "tests/fakecuda/nccl_shim.h"
#include "tests/support/ranks.h"

using namespace trainer;
using namespace trainer::test;

namespace {

void require_same(const StepReport& a, const StepReport& b) {
  REQUIRE(std::memcmp(&a.loss, &b.loss, sizeof a.loss) == 0);
  REQUIRE(std::memcmp(&a.grad_norm, &b.grad_norm, sizeof a.grad_norm) == 0);
  REQUIRE(a.tokens == b.tokens);
  REQUIRE(a.data_hash == b.data_hash);
  REQUIRE(a.finite == b.finite);
  REQUIRE(a.stop == b.stop);
}

}  // namespace

TEST_CASE("graphs of two plans, a checkpoint between them, a signal: all as without graphs") {
  std::vector<StepReport> reports[2];
  std::vector<std::byte> states[2];
  for (const bool graph : {false, true}) {
    SoloExchange alone;
    GpuRun run(spec_with({.family = Family::gpt2, .accumulation = 2, .dropout = 0.1f}, graph), alone);
    auto& of = reports[graph];
    for (int i = 0; i < 3; ++i) of.push_back(run.train());
    for (int i = 0; i < 3; ++i) of.push_back(run.evaluate(i));
    of.push_back(run.train());
    const std::vector<std::byte> saved = run.save();
    of.push_back(run.train());
    run.rig.device->drain();
    std::copy(saved.begin(), saved.end(), run.state->bytes().begin());
    run.state->store();
    --run.trained;
    of.push_back(run.train());
    require_same(of.back(), of[of.size() - 2]);
    run.stop = 15;
    of.push_back(run.evaluate(0));
    REQUIRE(of.back().stop);
    states[graph] = run.save();
  }
  REQUIRE(reports[0].size() == reports[1].size());
  for (size_t i = 0; i < reports[0].size(); ++i) require_same(reports[0][i], reports[1][i]);
  REQUIRE(states[0] == states[1]);
}

TEST_CASE("the host gives one launch to a step, and waits once") {
  SoloExchange alone;
  GpuRun run(spec_with({.accumulation = 3}, true), alone);
  run.train();
  run.train();
  for (int i = 0; i < 3; ++i) {
    const fake::Counters before = fake::counters;
    run.train();
    REQUIRE(fake::counters.graph_launches - before.graph_launches == 1);
    REQUIRE(fake::counters.submissions - before.submissions == 1);
    REQUIRE(fake::counters.host_waits - before.host_waits == 1);
  }
}

TEST_CASE("what is not finite is found after steps that were graphs") {
  std::string found[2];
  for (const bool graph : {false, true}) {
    SoloExchange alone;
    GpuRun run(spec_with({}, graph), alone);
    for (int i = 0; i < 3; ++i) REQUIRE(run.train().finite);
    const Planned& p = run.rig.planned;
    run.save();
    const StateSlot& slot = p.program.state.front();
    const float nan = std::nanf("");
    std::memcpy(run.state->bytes().data() + slot.offset, &nan, sizeof nan);
    run.state->store();
    REQUIRE_FALSE(run.train().finite);
    const Control control = step_control(p.spec, run.trained - 1, 100);
    found[graph] =
        run.engine->find_nonfinite(train_key(p.spec, p.spec.train.global_batch.count, 1), control).value_or("nothing");
  }
  REQUIRE(found[0] == found[1]);
  REQUIRE_THAT(found[1], Catch::Contains("the weight"));
}

TEST_CASE("a rank that fails between graphs ends the others, and their communicators") {
  const RunSpec spec = spec_with({.dp = 2, .zero = 1}, true);
  const auto fails = [&](const std::function<void(GpuRun&, int rank)>& then) {
    run_ranks(2, [&](Exchange& exchange) {
      GpuRun run(spec, exchange);
      for (int i = 0; i < 3; ++i) run.train();
      then(run, exchange.rank());
    });
  };
  const auto one_without_data = [](GpuRun& run, int rank) {
    if (rank == 1) run.feed.fails_at = 4;
    for (int i = 0; i < 3; ++i) run.train();
  };
  REQUIRE_THROWS_WITH(fails(one_without_data), Catch::Contains("the data ends here"));
  REQUIRE(fakenccl::counts().alive == 0);
  const auto one_with_an_error = [](GpuRun& run, int rank) {  // found by a call of the thread that owns the graphs
    Comm& world = run.rig.groups().on(Axis::world, Lane::compute);
    const Tensor word = make_tensor(run.rig.arena().data(), DType::f32, {1});
    if (rank == 1) fakenccl::fail_async("world, lane compute", 1, ncclRemoteError);
    for (int i = 0; i < 1000; ++i) world.all_reduce(run.rig.device->lane(Lane::compute), word);
    run.train();
  };
  REQUIRE_THROWS_WITH(fails(one_with_an_error), Catch::Contains("remote process exited"));
  REQUIRE(fakenccl::counts().alive == 0);
}
