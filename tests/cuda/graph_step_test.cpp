// Steps that are launched as graphs: the same bits as steps that are issued, one launch each, whatever comes in
// between.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "app/rig.h"
#include "app/step_control.h"
#include "core/device/host_image.h"
#include "core/engine/engine.h"
#include "core/engine/initialise.h"
#include "core/plan/layout.h"
#include "tests/fakecuda/fake_cuda.h"
#include "tests/fakecuda/nccl_shim.h"
#include "tests/ranks/layouts.h"
#include "tests/ranks/sequence_feed.h"
#include "tests/support/ranks.h"

using namespace trainer;
using namespace trainer::test;

namespace {

// Has a hash, and fails at a step when told to.
class TestFeed final : public SequenceFeed {
 public:
  using SequenceFeed::SequenceFeed;
  NoteCall hash_note() const override {
    return {[](const void*, int64_t step, Outcome& o) { add_data_hash(o, uint64_t(1000 + step)); }, this};
  }
  int64_t fails_at = -1;

 private:
  void write(Split split, int64_t step, int microbatch, const Batch& batch) override {
    check(step != fails_at, Exit::data, "the data ends here");
    SequenceFeed::write(split, step, microbatch, batch);
  }
};

RunSpec spec_with(const Layout& layout, bool graph) {
  RunSpec spec = spec_of(layout);
  spec.device.kind = DeviceChoice::cuda;
  spec.device.cuda_graph = graph;
  spec.data.split = 0.9;  // so that there is a plan to evaluate
  install_device(spec);
  return spec;
}

// A rank of a run, as the loop of training holds it.
class Run {
 public:
  Run(const RunSpec& spec, Exchange& exchange) : rig(open(spec, exchange)), feed(planned().spec, planned().mesh) {
    state.emplace(*rig.device, static_bytes(planned().program));
    initialise_state(planned().program, planned().model, 1, state->bytes());
    state->store();
    feed.stage_in(rig.staging(), staging_turns(rig.planned.program));
    engine.emplace(planned().program, planned().spec, planned().mesh, planned().model,
                   EngineDevices{*rig.device, rig.groups(), feed, nullptr, &stop});
  }
  StepReport train() {
    const RunSpec& spec = planned().spec;
    const int64_t step = trained++;
    return engine->step(train_key(spec, spec.train.global_batch.count, planned().mesh.dp),
                        step_control(spec, step, 100));
  }
  StepReport evaluate(int64_t pass) {
    Control control = step_control(planned().spec, trained, 100);
    control.step = pass;
    return engine->step(evaluate_key(planned().spec), control);
  }
  std::vector<std::byte> save() {
    rig.device->drain();
    state->fetch();
    const auto bytes = state->bytes();
    return {bytes.begin(), bytes.end()};
  }

  Rig rig;
  std::optional<HostImage> state;
  TestFeed feed;
  std::atomic<int> stop{0};
  int64_t trained = 0;
  std::optional<Engine> engine;

 private:
  static Rig open(const RunSpec& spec, Exchange& exchange) {
    claim_device(spec.device, exchange.rank(), exchange.size());
    return open_rig(plan_run(spec, exchange.size(), exchange.rank()), exchange);
  }
  const Planned& planned() const { return rig.planned; }
};

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
    Run run(spec_with({.family = Family::gpt2, .accumulation = 2, .dropout = 0.1f}, graph), alone);
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
  Run run(spec_with({.accumulation = 3}, true), alone);
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
    Run run(spec_with({}, graph), alone);
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
  const auto fails = [&](const std::function<void(Run&, int rank)>& then) {
    run_ranks(2, [&](Exchange& exchange) {
      Run run(spec, exchange);
      for (int i = 0; i < 3; ++i) run.train();
      then(run, exchange.rank());
    });
  };
  const auto one_without_data = [](Run& run, int rank) {
    if (rank == 1) run.feed.fails_at = 4;
    for (int i = 0; i < 3; ++i) run.train();
  };
  REQUIRE_THROWS_WITH(fails(one_without_data), Catch::Contains("the data ends here"));
  REQUIRE(fakenccl::counts().alive == 0);
  const auto one_with_an_error = [](Run& run, int rank) {  // found by a call of the thread that owns the graphs
    Comm& world = run.rig.groups().on(Axis::world, Lane::compute);
    const Tensor word = make_tensor(run.rig.arena().data(), DType::f32, {1});
    if (rank == 1) fakenccl::fail_async("world, lane compute", 1, ncclRemoteError);
    for (int i = 0; i < 1000; ++i) world.all_reduce(run.rig.device->lane(Lane::compute), word);
    run.train();
  };
  REQUIRE_THROWS_WITH(fails(one_with_an_error), Catch::Contains("remote process exited"));
  REQUIRE(fakenccl::counts().alive == 0);
}
