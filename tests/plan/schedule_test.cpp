// Schedules on the clock: known bubbles, no deadlock, and the deadlock that the order of the world prevents.
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/plan/bind.h"
#include "core/plan/buckets.h"
#include "core/plan/layout.h"
#include "core/plan/link.h"
#include "core/plan/verify.h"
#include "parallel/passes/passes.h"
#include "parallel/schedules/schedules.h"
#include "tests/plan/worlds.h"

using namespace trainer;
using namespace trainer::test;

namespace {

WorldShape pipeline(PipelineKind k, int p, int m) {
  return {.schedule = k, .pp = p, .chunks = std::max(1, chunks_of(k)), .layers = 2 * p, .microbatches = m};
}

// Idle time of a stage where f = b = w = 1 for the blocks of a stage, as the papers have it.
double idle(PipelineKind k, int p, int m) {
  const Case c(pipeline(k, p, m), {StepKind::train});
  const auto programs = make_programs(c.request());
  return clock_world(world_of(c.spec, c.model, programs), c.keys[0], Costs{}).makespan - 3 * m;
}

// Programs without one order of the world, whose receives stand where they are needed.
std::vector<Program> unordered_programs(const Case& c) {
  std::vector<Program> all;
  const Stages stages(c.spec, c.model, find_schedule(c.spec.parallel.pipeline), c.keys[0].microbatches);
  for (int rank = 0; rank < c.world; ++rank) {
    const Mesh mesh = Mesh::of(c.spec, c.world, rank);
    const PlanContext context{c.spec, mesh, c.model, c.keys[0], stages};
    Program& p = all.emplace_back();
    make_buckets(p, context, stages, {});
    Code code;
    for (CodePass pass : code_passes())
      code = pass == CodePass(pipe) ? place_pipe(std::move(code), context, p, 0) : pass(std::move(code), context, p);
    p.plans.push_back({c.keys[0], trainer::bind(std::move(code), context, p)});
    layout(p, Reuse::yes);
    link(p);
    place_scratch(p, {});
  }
  return all;
}

bool deadlocks(const Case& c, const std::vector<Program>& programs) {
  return !clock_world(world_of(c.spec, c.model, programs), c.keys[0], Costs{}).stuck.empty();
}

}  // namespace

TEST_CASE("bubbles are those of the papers") {
  for (int p : {2, 3, 4}) {
    CHECK(idle(PipelineKind::zb_h1, p, 2 * p) == Approx(p - 1));
    // A gradient leaves a stage before its last W, hence less than the 3 (p - 1) of whole backwards.
    CHECK(idle(PipelineKind::one_f_one_b, p, 2 * p) <= 3 * (p - 1));
    CHECK(idle(PipelineKind::one_f_one_b, p, 2 * p) > 2 * (p - 1));
    CHECK(idle(PipelineKind::gpipe, p, 2 * p) <= 3 * (p - 1));
  }
  CHECK(idle(PipelineKind::zb_v, 4, 8) < idle(PipelineKind::zb_h1, 4, 8));
}

TEST_CASE("1f1b keeps fewer activations than gpipe") {
  const auto arena = [](PipelineKind k) {
    return make_program(Case(pipeline(k, 2, 8), {StepKind::train}).request(), 0).arena_bytes;
  };
  REQUIRE(arena(PipelineKind::one_f_one_b) < arena(PipelineKind::gpipe));
}

TEST_CASE("a world of any schedule and ZeRO stage is sound") {
  for (PipelineKind k :
       {PipelineKind::gpipe, PipelineKind::one_f_one_b, PipelineKind::zb_h1, PipelineKind::zb_h2, PipelineKind::zb_v,
        PipelineKind::zb_auto, PipelineKind::dualpipe_v, PipelineKind::interleaved})
    for (int zero : {0, 1, 2, 3})
      for (Family family : {Family::llama, Family::gpt2}) {
        WorldShape w = pipeline(k, 2, 4 - zero);  // among them fewer micro-batches than stages, and no multiple
        if (k == PipelineKind::interleaved) w.chunks = 2;
        w.dp = 2;
        w.zero = zero;
        w.family = family;
        w.recompute = zero % 2 ? RecomputeKind::full : RecomputeKind::selective;
        const Case c(w, {StepKind::train, StepKind::train_and_snapshot, StepKind::evaluate});
        const auto programs = make_programs(c.request());
        CAPTURE(int(k), zero);
        for (const Program& p : programs) REQUIRE_NOTHROW(verify(p));
        REQUIRE_NOTHROW(verify_world(world_of(c.spec, c.model, programs)));
      }
}

TEST_CASE("without one order of the world some programs deadlock, each sound alone; with it none does") {
  int stuck = 0;
  for (PipelineKind k : {PipelineKind::gpipe, PipelineKind::one_f_one_b, PipelineKind::zb_h1, PipelineKind::zb_v})
    for (int p : {2, 3})
      for (RecomputeKind r : {RecomputeKind::none, RecomputeKind::full}) {
        WorldShape w = pipeline(k, p, 8);
        w.recompute = r;
        const Case c(w, {StepKind::train});
        const auto programs = unordered_programs(c);
        for (const Program& q : programs) REQUIRE_NOTHROW(verify(q));
        stuck += deadlocks(c, programs);
        REQUIRE_FALSE(deadlocks(c, make_programs(c.request())));
      }
  REQUIRE(stuck > 0);
}

TEST_CASE("ranks that disagree are found where they meet") {
  const Case c({.pp = 2}, {StepKind::train});
  auto programs = make_programs(c.request());
  for (Instr& i : programs[1].plans[0].second.code)
    if (i.verb == Verb::recv_act) i.microbatch = int16_t(1 - i.microbatch);
  REQUIRE_THROWS_WITH(verify_world(world_of(c.spec, c.model, programs)), Catch::Contains("meets"));
}

namespace {

// The most bytes of saved tensors that live at once on a stage, in units of those of one micro-batch.
double peak_in_flight(const Case& c, int stage) {
  const auto programs = make_programs(c.request());
  const Plan& plan = *find_plan(programs[size_t(stage)], c.keys[0]);
  size_t live = 0, most = 0, of_one = 0;
  for (const Instr& i : plan.code)
    for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u) {
      const Slot& s = plan.slots[plan.uses[u].slot];
      if (s.kind != SlotClass::saved || i.verb == Verb::forward && plan.uses[u].access == Access::free) continue;
      if (plan.uses[u].access == Access::write) {
        live += s.bytes();
        of_one += s.microbatch == 0 ? s.bytes() : 0;
      }
      if (plan.uses[u].access == Access::free) live -= s.bytes();
      most = std::max(most, live);
    }
  return double(most) / double(of_one);
}

}  // namespace

TEST_CASE("peak in-flight activations are the closed forms, as bytes of the arena's slots") {
  for (int p : {2, 3, 4})
    for (int m : {1, 3, 8})
      for (int s = 0; s + 1 < p; ++s) {  // the head's saved tensors do not outlive its forward
        CAPTURE(p, m, s);
        CHECK(peak_in_flight(Case(pipeline(PipelineKind::gpipe, p, m), {StepKind::train}), s) == m);
        CHECK(peak_in_flight(Case(pipeline(PipelineKind::one_f_one_b, p, m), {StepKind::train}), s) ==
              std::min(m, p - s));
        // p - s micro-batches before their I, s more before their W: what W reads is kept until then.
        CHECK(peak_in_flight(Case(pipeline(PipelineKind::zb_h1, p, m), {StepKind::train}), s) == std::min(m, p));
      }
}

TEST_CASE("a V of many stages has an order of the world") {
  for (PipelineKind k : {PipelineKind::zb_v, PipelineKind::dualpipe_v})
    for (int p : {5, 6, 8}) {
      const Case c({.schedule = k, .pp = p, .chunks = 2, .layers = 2 * p, .microbatches = 2 * p}, {StepKind::train});
      CHECK_NOTHROW(make_program(c.request(), 0));
    }
}
