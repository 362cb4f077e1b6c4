// When the instructions of a step ran, by the device's clock: issued, and launched as a graph.
#include <catch2/catch.hpp>

#include "tests/cuda/gpu_run.h"

using namespace trainer;
using namespace trainer::test;

namespace {

struct Traced {
  std::vector<float> losses;
  std::vector<Span> spans;
  Plan plan;
};

Traced run_steps(bool graph, bool trace) {
  RunSpec spec = spec_with({.family = Family::gpt2, .accumulation = 2}, graph);
  spec.log.trace = trace;
  SoloExchange alone;
  GpuRun run(spec, alone);
  Traced traced;
  for (int i = 0; i < 3; ++i) traced.losses.push_back(float(run.train().loss));
  run.rig.device->drain();
  const Planned& p = run.rig.planned;
  const PlanKey key = train_key(p.spec, p.spec.train.global_batch.count, 1);
  traced.spans = run.engine->spans(key);
  traced.plan = *find_plan(p.program, key);
  return traced;
}

}  // namespace

TEST_CASE("a GPU's instructions are traced: each behind those it waits for and those before it on its lane") {
  const Traced plain = run_steps(false, false);
  REQUIRE(plain.spans.empty());
  for (const bool graph : {false, true}) {
    CAPTURE(graph);
    const Traced traced = run_steps(graph, true);
    REQUIRE(traced.losses == plain.losses);
    REQUIRE(traced.spans.size() == traced.plan.code.size());
    std::array<double, kLanes> over{};  // the last on each lane
    for (size_t i = 0; i < traced.spans.size(); ++i) {
      CAPTURE(i);
      const Span& span = traced.spans[i];
      const Instr& instr = traced.plan.code[i];
      REQUIRE(span.begin > 0);
      REQUIRE(span.end >= span.begin);
      REQUIRE(span.begin >= over[size_t(instr.lane)]);
      over[size_t(instr.lane)] = span.end;
      for (uint32_t e = instr.waits[0]; e < instr.waits[1]; ++e)
        REQUIRE(span.begin >= traced.spans[traced.plan.edges[e]].end);
    }
  }
}
