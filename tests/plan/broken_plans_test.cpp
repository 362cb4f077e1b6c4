// Plans broken by hand: what verify and verify_world say of each names the instruction.
#include <algorithm>
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/plan/layout.h"
#include "core/plan/link.h"
#include "core/plan/verify.h"
#include "tests/plan/worlds.h"

using namespace trainer;
using namespace trainer::test;

namespace {

using Code = std::vector<Instr>;

// Two stages of two replicas, ZeRO-3, tied tables: a train step of every rank, one of which is broken.
class World4 {
 public:
  explicit World4(StepKind kind = StepKind::train_and_snapshot, int zero = 3)
      : c_({.pp = 2, .dp = 2, .zero = zero}, {kind}), programs_(make_programs(c_.request())) {}

  Program& program(int rank) { return programs_[size_t(rank)]; }
  Plan& plan(int rank) { return program(rank).plans[0].second; }
  Code& code(int rank) { return plan(rank).code; }
  // The n-th instruction of a verb.
  InstrId find(int rank, Verb v, int n = 0) {
    for (InstrId id = 0; id < code(rank).size(); ++id)
      if (code(rank)[id].verb == v && n-- == 0) return id;
    throw std::logic_error("no such instruction");
  }
  void drop(int rank, Verb v, int n = 0) { code(rank).erase(code(rank).begin() + find(rank, v, n)); }
  void twice(int rank, Verb v) {
    const InstrId id = find(rank, v);
    code(rank).insert(code(rank).begin() + id, code(rank)[id]);
  }
  void swap(int rank, Verb a, int n, Verb b, int k) {
    std::swap(code(rank)[find(rank, a, n)], code(rank)[find(rank, b, k)]);
  }
  // The first use of a kind by an instruction.
  Use& use(int rank, InstrId id, Access access, SlotClass kind) {
    Plan& p = plan(rank);
    for (uint32_t u = p.code[id].uses[0]; u < p.code[id].uses[1]; ++u)
      if (p.uses[u].access == access && p.slots[p.uses[u].slot].kind == kind) return p.uses[u];
    throw std::logic_error("no such use");
  }
  // An instruction that waits for another, and has such a wait.
  InstrId waiting(int rank, Verb v) {
    for (InstrId id = 0; id < code(rank).size(); ++id)
      if (code(rank)[id].verb == v && code(rank)[id].waits[0] < code(rank)[id].waits[1]) return id;
    throw std::logic_error("nothing waits");
  }
  // Offsets and waits as if nothing were wrong.
  void relink(int rank) {
    Program& p = program(rank);
    layout(p, Reuse::yes);
    link(p);
    place_scratch(p, p.scratch);
  }
  std::string refusal() {
    try {
      for (const Program& p : programs_) verify(p);
      verify_world(world_of(c_.spec, c_.model, programs_));
    } catch (const Error& e) { return e.what(); }
    return "accepted";
  }

 private:
  Case c_;
  std::vector<Program> programs_;
};

struct Broken {
  const char* what;
  void (*harm)(World4&);
  std::vector<std::string> said;
  bool relinked = false;  // a broken list, laid out and linked anew; else a broken plan
};

const std::vector<Broken>& broken_lists() {
  static const std::vector<Broken> all = {
      {"a missing send", [](World4& w) { w.drop(0, Verb::send_act); }, {"forward m0", "act m0", "never freed"}, true},
      {"a missing send of a gradient",
       [](World4& w) { w.drop(2, Verb::send_grad, 1); },
       {"backward_input m1", "d_act m1", "never freed"},
       true},
      {"swapped sends",
       [](World4& w) { w.swap(0, Verb::send_act, 0, Verb::send_act, 1); },
       {"send_act m1", "not live"},
       true},
      {"swapped receives",
       [](World4& w) { w.swap(2, Verb::recv_act, 0, Verb::recv_act, 1); },
       {"forward m0", "act m0", "not live"},
       true},
      {"a send to nobody",
       [](World4& w) { w.code(0)[w.find(0, Verb::send_act)].peer = 0; },
       {"deadlocks", "send_act m0"},
       true},
      {"a missing agreement", [](World4& w) { w.drop(0, Verb::agree); }, {"0 agree"}, true},
      {"two begins", [](World4& w) { w.twice(0, Verb::begin); }, {"2 begin"}, true},
      {"two agreements", [](World4& w) { w.twice(3, Verb::agree); }, {"2 agree"}, true},
      {"a missing norm", [](World4& w) { w.drop(0, Verb::norm); }, {"the norm of bucket", "counted 0 times"}, true},
      {"a norm counted twice",
       [](World4& w) { w.twice(0, Verb::norm); },
       {"the norm of bucket", "counted 2 times"},
       true},
      {"a missing update", [](World4& w) { w.drop(1, Verb::update); }, {"0 update of bucket"}, true},
      {"a bucket updated twice", [](World4& w) { w.twice(1, Verb::update); }, {"update", "not live"}, true},
      {"a missing tie", [](World4& w) { w.drop(0, Verb::tie); }, {"0 tie of bucket"}, true},
      {"a missing snapshot slice", [](World4& w) { w.drop(2, Verb::snapshot); }, {"0 snapshot of bucket"}, true},
      {"a slice copied twice", [](World4& w) { w.twice(2, Verb::snapshot); }, {"2 snapshot of bucket"}, true},
      {"reduces in another order than the replica's",
       [](World4& w) { w.swap(0, Verb::reduce, 0, Verb::reduce, 1); },
       {"`reduce", "meets"},
       true},
      {"gathers in another order than the replica's",
       [](World4& w) { w.swap(1, Verb::gather, 0, Verb::gather, 1); },
       {"gather"},
       true},
  };
  return all;
}

const std::vector<Broken>& broken_plans() {
  static const std::vector<Broken> all = {
      {"a missing receive", [](World4& w) { w.drop(2, Verb::recv_act); }, {"forward m0", "nobody wrote"}},
      {"a missing load", [](World4& w) { w.drop(0, Verb::load); }, {"forward m0", "batch m0", "nobody wrote"}},
      {"a stale gather: the weights are released before they are read",
       [](World4& w) {
         Code& code = w.code(0);
         const InstrId release = w.find(0, Verb::release), gather = w.find(0, Verb::gather);
         std::rotate(code.begin() + gather + 1, code.begin() + release, code.begin() + release + 1);
       },
       {"uses weight", "after it was freed"}},
      {"a freed slot read",
       [](World4& w) {
         const InstrId backward = w.find(0, Verb::backward_input);
         Use& input = w.use(0, backward, Access::read, SlotClass::saved);
         w.use(0, w.find(0, Verb::backward_weight, 3), Access::read, SlotClass::saved).slot = input.slot;
       },
       {"backward_weight m1", "after it was freed"}},
      {"a slot freed twice",
       [](World4& w) {
         const InstrId last = w.find(0, Verb::backward_weight, 1);
         const Use first = w.use(0, w.find(0, Verb::backward_weight), Access::free, SlotClass::saved);
         w.use(0, last, Access::free, SlotClass::saved) = first;
       },
       {"backward_weight", "saved"}},
      {"a leak",
       [](World4& w) {
         Use& free = w.use(0, w.find(0, Verb::send_act), Access::free, SlotClass::act);
         free.access = Access::read;
       },
       {"forward m1", "lies on bytes of a live slot"}},
      {"a slot that moves",
       [](World4& w) { w.use(0, w.find(0, Verb::send_act), Access::read, SlotClass::act).offset += kArenaAlign; },
       {"send_act m0", "has moved"}},
      {"a slot beyond the arena",
       [](World4& w) {
         w.use(0, w.find(0, Verb::recv_grad), Access::write, SlotClass::d_act).offset = w.program(0).arena_bytes;
       },
       {"recv_grad m0", "beyond the arena"}},
      {"a receive into bytes of a live slot",
       [](World4& w) {
         const size_t live = w.use(2, w.find(2, Verb::forward), Access::read, SlotClass::act).offset;
         w.use(2, w.find(2, Verb::recv_act, 1), Access::write, SlotClass::act).offset = live;
       },
       {"recv_act m1", "lies on bytes of a live slot"}},
      {"a forward that does not wait for its receive",
       [](World4& w) {
         Instr& i = w.code(2)[w.waiting(2, Verb::forward)];
         i.waits[1] = i.waits[0];
       },
       {"forward m", "races with the"}},
      {"a send that does not wait for its forward",
       [](World4& w) {
         Instr& i = w.code(0)[w.waiting(0, Verb::send_act)];
         i.waits[1] = i.waits[0];
       },
       {"send_act m", "races with the compute lane"}},
      {"an update that does not wait for the agreement's gradient",
       [](World4& w) {
         Instr& i = w.code(0)[w.waiting(0, Verb::norm)];
         i.waits[1] = i.waits[0];
       },
       {"norm", "races with the reduce lane"}},
      {"a wait for what comes later",
       [](World4& w) {
         const InstrId id = w.waiting(0, Verb::send_act);
         w.plan(0).edges[w.code(0)[id].waits[0]] = InstrId(w.code(0).size() - 1);
       },
       {"send_act m", "which comes later"}},
      {"a missing seam",
       [](World4& w) {
         const auto it = std::find_if(w.code(0).begin(), w.code(0).end(), [](const Instr& i) { return i.seam != 0; });
         it->seam = 0;
       },
       {"races with an earlier step"}},
      {"a first contribution that adds to nothing",
       [](World4& w) {
         const auto it = std::find_if(w.code(0).begin(), w.code(0).end(), [](const Instr& i) { return i.fresh != 0; });
         it->fresh = 0;
       },
       {"first contributions to gradients"}},
      {"a missing reduce", [](World4& w) { w.drop(0, Verb::reduce); }, {"gradient", "is never reduced"}},
  };
  return all;
}

void expect_refused(const Broken& b) {
  World4 world;
  REQUIRE(world.refusal() == "accepted");
  std::string said;
  try {
    b.harm(world);
    if (b.relinked)
      for (int rank = 0; rank < 4; ++rank) world.relink(rank);
    said = world.refusal();
  } catch (const Error& e) { said = e.what(); }
  INFO(b.what << ": " << said);
  for (const std::string& part : b.said) CHECK(said.find(part) != said.npos);
}

}  // namespace

TEST_CASE("broken lists are refused by the instruction") {
  for (const Broken& b : broken_lists()) expect_refused(b);
}

TEST_CASE("broken plans are refused by the instruction") {
  for (const Broken& b : broken_plans()) expect_refused(b);
}
