// Programs of one and of many ranks: sound, printable, in the bytes they claim.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/plan/arena_bytes.h"
#include "core/plan/layout.h"
#include "core/plan/link.h"
#include "core/plan/text.h"
#include "core/plan/verify.h"
#include "tests/plan/worlds.h"

using namespace trainer;
using namespace trainer::test;

namespace {

std::vector<WorldShape> one_rank_shapes() {
  std::vector<WorldShape> all;
  for (RecomputeKind r : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full, RecomputeKind::every})
    for (Family f : {Family::llama, Family::gpt2})
      for (int zero : {0, 3}) all.push_back({.zero = zero, .layers = 3, .recompute = r, .family = f});
  return all;
}

double cpu_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

// tests/golden/NAME.plan; TRAINER_WRITE_GOLDEN=1 writes it anew.
void compare_with_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(TESTS_DIR) + "/golden/" + name + ".plan";
  if (std::getenv("TRAINER_WRITE_GOLDEN")) std::ofstream(path) << text;
  std::ifstream in(path);
  INFO(path);
  REQUIRE(in.good());
  std::stringstream golden;
  golden << in.rdbuf();
  std::istringstream found(text);
  int line = 0;
  for (std::string a, b; ++line, std::getline(golden, a);) {
    std::getline(found, b);
    INFO("line " << line);
    REQUIRE(b == a);
  }
  REQUIRE(found.peek() == EOF);
}

}  // namespace

TEST_CASE("programs of one rank are proven, print and parse, and account for every byte") {
  for (const WorldShape& w : one_rank_shapes()) {
    const Case c(w);
    const Program p = make_program(c.request(), 0);
    REQUIRE(total(arena_bytes(p)) == p.arena_bytes);
    size_t highest = 0;
    for (const auto& [key, plan] : p.plans) {
      const std::string text = to_text(plan);
      REQUIRE(to_text(parse_plan(text)) == text);
      for (const Use& u : plan.uses) highest = std::max(highest, u.offset + plan.slots[u.slot].bytes());
    }
    REQUIRE(arena_aligned(highest) <= p.arena_bytes);
  }
}

TEST_CASE("plans look as they always did") {
  compare_with_golden("llama_one_rank", to_text(make_program(Case({.layers = 1}).request(), 0)));
  const Case recomputes({.layers = 1, .microbatches = 1, .recompute = RecomputeKind::full});
  compare_with_golden("llama_full_recompute", to_text(make_program(recomputes.request(), 0)));
  const Case pipeline({.pp = 2, .dp = 2, .zero = 3}, {StepKind::train_and_snapshot});
  compare_with_golden("llama_pp2_dp2_zero3_rank2", to_text(make_program(pipeline.request(), 2)));
}

TEST_CASE("a plan's text that lies is refused with its line") {
  REQUIRE_THROWS_WITH(parse_plan("slot act m0 b3 i0 life0 bf16 [4]\nforwards m0\n"), Catch::Contains("line 2"));
  REQUIRE_THROWS_WITH(parse_plan("begin m- c- b- k- p- s- on compute seam 0x0 fresh 0x0 waits uses w7@0\n"),
                      Catch::Contains("slot 7"));
}

TEST_CASE("recompute makes activations smaller, and selective lies between none and full") {
  std::map<RecomputeKind, size_t> bytes;
  for (RecomputeKind r : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full})
    bytes[r] = arena_bytes(make_program(Case({.layers = 8, .recompute = r}).request(), 0)).activations;
  REQUIRE(bytes[RecomputeKind::full] < bytes[RecomputeKind::selective]);
  REQUIRE(bytes[RecomputeKind::selective] < bytes[RecomputeKind::none]);
}

TEST_CASE("only dropped buffers are restored, each block before its own backward or a layer together") {
  const auto recomputed = [](RecomputeKind r) {
    std::vector<int> blocks;
    const Program p = make_program(Case({.layers = 2, .microbatches = 1, .recompute = r}).request(), 0);
    for (const Instr& i : p.plans[0].second.code)
      if (i.verb == Verb::recompute) blocks.push_back(i.block);
    return blocks;
  };
  REQUIRE(recomputed(RecomputeKind::none).empty());
  REQUIRE(recomputed(RecomputeKind::selective) == std::vector{4, 3, 2, 1});
  REQUIRE(recomputed(RecomputeKind::full) == std::vector{3, 4, 1, 2});
  REQUIRE(recomputed(RecomputeKind::every) == std::vector{1, 2});
}

TEST_CASE("gradients: the first contribution of each parameter writes, later ones add") {
  for (Family f : {Family::llama, Family::gpt2}) {
    const Case c({.layers = 1, .family = f});
    const Program p = make_program(c.request(), 0);
    std::map<ParamId, int> fresh, all;
    for (const Instr& i : p.plans[0].second.code) {
      if (i.block < 0) continue;
      const BlockLayout l = c.model.blocks[size_t(i.block)]->layout();
      if (i.verb != Verb::backward_weight && !(i.verb == Verb::forward && l.grads_in_forward)) continue;
      for (size_t k = 0; k < l.params.size(); ++k) {
        const bool first = all[l.params[k]]++ == 0;
        REQUIRE(bool(i.fresh >> k & 1) == first);
        fresh[l.params[k]] += first;
      }
    }
    REQUIRE(fresh.size() == c.model.params.size());
    REQUIRE(all.at(0) == 4);  // the tied table: head and embedding, two micro-batches
  }
}

TEST_CASE("fp32 has no master, bf16 has one, and snapshots save it") {
  for (Precision compute : {Precision::fp32, Precision::bf16}) {
    const Case c({.compute = compute}, {StepKind::train, StepKind::train_and_snapshot});
    const Program p = make_program(c.request(), 0);
    const bool master = compute == Precision::bf16;
    REQUIRE(bool(find_state(p, 0, int(Role::master))) == master);
    REQUIRE(bool(find_state(p, 0, kStaging + int(Role::master))) == master);
    REQUIRE(bool(find_state(p, 0, kStaging + int(Role::weight))) != master);
    REQUIRE(find_state(p, 0, int(Role::weight))->dtype == (master ? DType::bf16 : DType::f32));
  }
  REQUIRE(arena_bytes(make_program(Case({}).request(), 0)).staging == 0);
}

TEST_CASE("every rank of a world computes the same hash, and another spec another one") {
  const Case c({.pp = 2, .dp = 2, .zero = 3});
  std::set<uint64_t> hashes;
  for (int rank = 0; rank < 4; ++rank) hashes.insert(make_program(c.request(), rank).hash);
  for (const Program& p : make_programs(c.request())) hashes.insert(p.hash);
  REQUIRE(hashes.size() == 1);
  hashes.insert(make_program(Case({.pp = 2, .dp = 2, .zero = 2}).request(), 0).hash);
  REQUIRE(hashes.size() == 2);
}

TEST_CASE("what decays comes first in a bucket") {
  for (Family f : {Family::llama, Family::gpt2}) {
    const Case c({.family = f});
    for (const Bucket& b : make_program(c.request(), 0).buckets) {
      int64_t at = 0;
      for (size_t k = 0; k < b.params.size(); ++k) {
        const Param& p = c.model.params[b.params[k]];
        REQUIRE(b.begin[k] == at);
        at += p.local.elements();
        REQUIRE(p.decays == (at <= b.decayed));
      }
      REQUIRE(at == b.size);
    }
  }
}

TEST_CASE("replicas hold slices that cover each bucket once") {
  const Case c({.dp = 3, .zero = 3});
  const auto programs = make_programs(c.request());
  for (size_t b = 0; b < programs[0].buckets.size(); ++b) {
    int64_t at = 0;
    for (const Program& p : programs) {
      const StateSlot& s = *find_state(p, int(b), int(Role::moment1));
      REQUIRE(s.begin == at);
      at = s.end;
    }
    REQUIRE(at == programs[0].buckets[b].padded);
  }
}

TEST_CASE("ZeRO-3 gathers each layer for forward and again for backward, unless it is kept") {
  const auto gathers = [](int keep) {
    Case c({.dp = 2, .zero = 3, .layers = 6, .microbatches = 2});
    c.spec.parallel.zero_keep = keep;
    const Program p = make_program(c.request(), 0);
    std::map<int, int> of_bucket;
    for (const Instr& i : p.plans[0].second.code) of_bucket[i.bucket] += i.verb == Verb::gather;
    return of_bucket;
  };
  // Bucket 0 is the embedding, 1 to 6 are the layers.
  auto none = gathers(0), two = gathers(2);
  for (int layer : {1, 2, 3, 4}) REQUIRE(two[layer] == none[layer]);
  for (int layer : {5, 6}) REQUIRE((two[layer] == 1 && none[layer] > 1));
}

TEST_CASE("shard groups smaller than dp: the state is cut among their ranks, and replicas hold the same slices") {
  Case c({.dp = 4, .zero = 2, .layers = 2});
  c.spec.parallel.zero_shard = 2;
  const std::vector<Program> all = make_programs(c.request());
  for (const StateSlot& s : all[1].state) {
    const StateSlot &twin = *find_state(all[3], s.bucket, s.index), &other = *find_state(all[0], s.bucket, s.index);
    REQUIRE((twin.begin == s.begin && twin.end == s.end));
    if (s.index == int(Role::moment1)) REQUIRE(other.end == s.begin);
  }
}

TEST_CASE("a reduce in another dtype moves its bytes, through a copy of the bucket that is accounted for") {
  struct Reduces {
    int64_t moved = 0, copies = 0, all = 0;
  };
  const auto reduces = [](Precision gradients, Precision reduce, int zero) {
    const Case c({.dp = 2, .zero = zero, .gradients = gradients, .reduce = reduce});
    const Program p = make_program(c.request(), 0);
    REQUIRE(total(arena_bytes(p)) == p.arena_bytes);
    const auto& [key, plan] = p.plans[0];
    Reduces r;
    for (const auto& [what, count] : measure(p, c.request(), Mesh::of(c.spec, 2, 0), key).collectives)
      if (what.find("reduce") != std::string::npos && !what.ends_with("f64")) r.moved += count.moved;
    for (const Slot& s : plan.slots)
      if (s.kind == SlotClass::work && s.microbatch < 0) {
        ++r.copies;
        REQUIRE(s.dtype == (reduce == Precision::bf16 ? DType::bf16 : DType::f32));
        REQUIRE(s.shape.elements() == p.buckets[size_t(s.block)].padded);
      }
    for (const Instr& i : plan.code) r.all += i.verb == Verb::reduce;
    return r;
  };
  constexpr Precision fp32 = Precision::fp32, bf16 = Precision::bf16;
  for (int zero : {0, 1, 2, 3}) {
    const Reduces wide = reduces(fp32, fp32, zero), narrow = reduces(bf16, bf16, zero),
                  narrowed = reduces(fp32, bf16, zero), widened = reduces(bf16, fp32, zero);
    REQUIRE((wide.moved > 0 && widened.moved == wide.moved));
    REQUIRE((narrow.moved * 2 == wide.moved && narrowed.moved == narrow.moved));
    REQUIRE((wide.copies == 0 && narrow.copies == 0));
    REQUIRE((narrowed.copies == narrowed.all && widened.copies == widened.all));
  }
}

TEST_CASE("reuse of memory: the peak of a plan is far below the sum of its slots") {
  const Program p = make_program(Case({.layers = 8, .microbatches = 8}).request(), 0);
  size_t sum = 0;
  for (const Slot& s : p.plans[0].second.slots)
    if (s.kind <= SlotClass::work) sum += s.bytes();
  REQUIRE(arena_bytes(p).activations * 5 < sum);
}

TEST_CASE("activations by position of the schedule: the peak stands at the last forward's end") {
  const auto peaks = activation_peaks(make_program(Case({.layers = 4}).request(), 0).plans[0].second);
  REQUIRE(peaks.size() == 4);  // F0 B0 F1 B1
  REQUIRE((peaks[0].forward && !peaks[1].forward && peaks[2].microbatch == 1));
  REQUIRE(peaks[0].bytes == peaks[2].bytes);
}

TEST_CASE("a ring holds what the plan puts into it, and scratch lies above all slots") {
  const Program p = make_program(Case({}).request(), 0);
  REQUIRE(p.ring_bytes[size_t(Lane::compute)] > 64 * p.plans[0].second.code.size());
  REQUIRE(p.scratch_offset[0] == dynamic_top(p));
}

TEST_CASE("shapes that cannot be are refused in words") {
  const auto planned = [](const WorldShape& w) { make_program(Case(w).request(), 0); };
  REQUIRE_THROWS_WITH(planned({.pp = 4, .layers = 2}), Catch::Contains("2 layers over 4 positions"));
  REQUIRE_THROWS_WITH(planned({.schedule = PipelineKind::zb_v, .pp = 2}), Catch::Contains("virtual_stages 2"));
  REQUIRE_THROWS_WITH(Mesh::of(spec_of({.pp = 3}), 4, 0), Catch::Contains("multiple of 3"));
}

TEST_CASE("planning is quick", "[.full]") {
  for (const auto& [layers, microbatches] : {std::pair{12, 8}, {80, 64}}) {
    const Case c({.layers = layers, .microbatches = microbatches});
    const double t0 = cpu_seconds();
    const Program p = make_program(c.request(), 0);
    const double t1 = cpu_seconds();
    verify(p);
    std::cout << layers << " layers, " << microbatches << " micro-batches: " << p.plans[0].second.code.size()
              << " instructions, " << t1 - t0 << " CPU seconds with the proof, " << cpu_seconds() - t1
              << " for verify\n";
  }
}
