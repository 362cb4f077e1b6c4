// The proof proves: every wait, seam and instruction that goes missing is noticed, by verify or verify_world.
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/plan/layout.h"
#include "core/plan/link.h"
#include "core/plan/text.h"
#include "core/plan/verify.h"
#include "tests/plan/worlds.h"

using namespace trainer;
using namespace trainer::test;

namespace {

class Mutants {
 public:
  explicit Mutants(const Case& c) : c_(c), sound_(make_programs(c.request())) {}
  void run() {
    REQUIRE(why_refused(sound_) == "");
    for (int stage = 0; stage < int(c_.spec.parallel.pp); ++stage)
      for (size_t plan = 0; plan < sound_[0].plans.size(); ++plan) {
        rank_ = size_t(stage * c_.world / int(c_.spec.parallel.pp));
        plan_ = plan;
        drop_waits();
        drop_seams();
        drop_instructions();
      }
  }
  int count() const { return count_; }

 private:
  const Plan& plan() const { return sound_[rank_].plans[plan_].second; }
  std::string why_refused(const std::vector<Program>& programs) const {
    try {
      for (const Program& p : programs) verify(p);
      verify_world(world_of(c_.spec, c_.model, programs));
    } catch (const Error& e) { return e.what(); }
    return "";
  }
  // Only the changed rank's own proof can have changed; then the world's.
  bool refused(Program& mutant) {
    ++count_;
    std::swap(sound_[rank_], mutant);
    bool found = false;
    try {
      verify(sound_[rank_]);
      verify_world(world_of(c_.spec, c_.model, sound_));
    } catch (const Error&) { found = true; }
    std::swap(sound_[rank_], mutant);
    return found;
  }
  void drop_waits() {
    for (uint32_t edge = 0; edge < plan().edges.size(); ++edge) {
      Program p = sound_[rank_];
      Plan& q = p.plans[plan_].second;
      q.edges.erase(q.edges.begin() + edge);
      InstrId from = 0;
      for (InstrId id = 0; id < q.code.size(); ++id) {
        if (edge >= q.code[id].waits[0] && edge < q.code[id].waits[1]) from = id;
        for (uint32_t& w : q.code[id].waits) w -= w > edge;
      }
      INFO("dropped the wait of " << to_text(q.code[from]) << " for " << to_text(plan().code[plan().edges[edge]]));
      REQUIRE(refused(p));
    }
  }
  void drop_seams() {
    for (InstrId id = 0; id < plan().code.size(); ++id)
      for (size_t l = 0; l < kLanes; ++l) {
        if (!(plan().code[id].seam >> l & 1)) continue;
        Program p = sound_[rank_];
        p.plans[plan_].second.code[id].seam &= LaneMask(~(1u << l));
        INFO("dropped the seam of " << to_text(plan().code[id]) << " on " << name_of(Lane(l)));
        REQUIRE(refused(p));
      }
  }
  // The instruction is forgotten, then all is laid out and linked as if nothing were.
  void drop_instructions() {
    for (InstrId id = 0; id < plan().code.size(); ++id) {
      Program p = sound_[rank_];
      auto& code = p.plans[plan_].second.code;
      code.erase(code.begin() + id);
      try {
        layout(p, Reuse::yes);
      } catch (const Error&) {
        ++count_;
        continue;
      }
      link(p);
      place_scratch(p, p.scratch);
      INFO("dropped " << to_text(plan().code[id]) << " of a " << name_of(p.plans[plan_].first.kind) << " step");
      REQUIRE(refused(p));
    }
  }

  const Case& c_;
  std::vector<Program> sound_;
  size_t rank_ = 0, plan_ = 0;
  int count_ = 0;
};

void every_mutant_is_refused(const WorldShape& w, std::vector<StepKind> kinds = {StepKind::train, StepKind::evaluate}) {
  const Case c(w, std::move(kinds));
  Mutants m(c);
  m.run();
  CAPTURE(m.count());
  REQUIRE(m.count() > 50);
}
const std::vector<StepKind> kAllKinds{StepKind::train, StepKind::train_and_snapshot, StepKind::snapshot,
                                      StepKind::evaluate};

}  // namespace

TEST_CASE("mutants of one rank's programs are refused") {
  for (RecomputeKind r : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full})
    every_mutant_is_refused({.layers = 1, .recompute = r});
  every_mutant_is_refused({.zero = 3, .layers = 1, .recompute = RecomputeKind::full, .family = Family::gpt2});
  every_mutant_is_refused({.layers = 1, .compute = Precision::fp32}, kAllKinds);
}

TEST_CASE("mutants of many ranks' programs are refused") {
  every_mutant_is_refused({.pp = 2, .dp = 2, .zero = 3}, kAllKinds);
  every_mutant_is_refused({.dp = 2, .zero = 2, .layers = 1, .reduce = Precision::bf16});
  every_mutant_is_refused({.schedule = PipelineKind::zb_h1, .pp = 2, .layers = 2, .microbatches = 3});
  every_mutant_is_refused({.schedule = PipelineKind::zb_v, .pp = 2, .dp = 2, .chunks = 2, .zero = 1, .layers = 4});
  every_mutant_is_refused({.schedule = PipelineKind::zb_h2, .pp = 2, .dp = 2, .zero = 1, .layers = 2},
                          {StepKind::train, StepKind::train_ahead, StepKind::undo});
}

TEST_CASE("mutants of the whole grid are refused", "[.full]") {
  struct Row {
    PipelineKind schedule;
    int pp, chunks;
  };
  for (const Row& row : {Row{PipelineKind::gpipe, 1, 1},
                         {PipelineKind::one_f_one_b, 2, 1},
                         {PipelineKind::zb_h1, 3, 1},
                         {PipelineKind::zb_v, 2, 2},
                         {PipelineKind::interleaved, 2, 2}})
    for (int zero : {0, 1, 2, 3})
      for (int dp : {1, 2})
        for (RecomputeKind r : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full}) {
          WorldShape w{.schedule = row.schedule, .pp = row.pp, .dp = dp, .chunks = row.chunks, .zero = zero};
          w.layers = row.pp * row.chunks;
          w.recompute = r;
          w.tied = zero % 2 == 0;
          CAPTURE(int(row.schedule), zero, dp, int(r));
          every_mutant_is_refused(w);
        }
}
