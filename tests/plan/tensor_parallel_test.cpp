// What tensor and sequence parallelism add to a plan: these collectives, of these bytes, and nothing on one rank.
#include <catch2/catch.hpp>
#include <set>

#include "tests/plan/worlds.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr int64_t kMicrobatches = 2, kLayers = 3;

struct Sliced {
  int tp = 1;
  bool sequence_parallel = false;
  RecomputeKind recompute = RecomputeKind::none;
};
RunSpec spec_of(const Sliced& w) {
  RunSpec s = spec_of(WorldShape{.layers = int(kLayers), .recompute = w.recompute});
  s.parallel.tp = w.tp;
  s.parallel.sequence_parallel = w.sequence_parallel;
  s.data.seq_len = 15;  // 30 rows
  return s;
}
PlanKey key_of(const RunSpec& s) { return {StepKind::train, int(kMicrobatches), s.data.seq_len}; }

MeterCounts counts_of(const Sliced& w) {
  const RunSpec spec = spec_of(w);
  const Mesh mesh = Mesh::of(spec, w.tp, 0);
  const Model model = build_model(spec, mesh);
  const PlanRequest request{spec, model, w.tp, {key_of(spec)}};
  return measure(make_program(request, 0), request, mesh, key_of(spec));
}

void check_count(const MeterCounts& counts, const std::string& what, int64_t count, int64_t bytes_of_each) {
  INFO(what);
  REQUIRE(counts.collectives.contains(what));
  CHECK(counts.collectives.at(what).count == count);
  CHECK(counts.collectives.at(what).bytes == double(count * bytes_of_each));
}

}  // namespace

TEST_CASE("one rank's plan has no collective, tensor parallelism's has two sums per half layer") {
  CHECK(counts_of({}).collectives.empty());
  const int64_t rows = 30, bytes = rows * 32 * 2;
  // Embedding, head, and both directions of both half layers.
  check_count(counts_of({2}), "tp all_reduce bf16", kMicrobatches * (2 + 4 * kLayers), bytes);
  // Records of the logits: three floats of each row from each rank.
  check_count(counts_of({2}), "tp all_gather f32", kMicrobatches, 2 * rows * 3 * 4);
  // Full recompute repeats the sum between its two halves, selective none.
  check_count(counts_of({2, false, RecomputeKind::full}), "tp all_reduce bf16", kMicrobatches * (2 + 5 * kLayers),
              bytes);
  check_count(counts_of({2, false, RecomputeKind::selective}), "tp all_reduce bf16", kMicrobatches * (2 + 4 * kLayers),
              bytes);
}

TEST_CASE("sequence parallelism scatters each sum and gathers before each product") {
  const int64_t rows = 32, bytes = rows * 32 * 2;  // 30 rows over 4 ranks, padded
  const MeterCounts counts = counts_of({4, true});
  check_count(counts, "tp reduce_scatter bf16", kMicrobatches * (2 + 4 * kLayers), bytes);
  // Forward: before the first product of each half layer and in the head. Backward: the branch's gradient and the
  // normed input again, and the embedding's gradient.
  check_count(counts, "tp all_gather bf16", kMicrobatches * (2 + 6 * kLayers), bytes);
  CHECK(!counts.collectives.contains("tp all_reduce bf16"));
}

TEST_CASE("every slice of tp has the same plan") {
  for (const Sliced& w : {Sliced{4, false}, Sliced{4, true}, Sliced{3, true, RecomputeKind::full}}) {
    const RunSpec spec = spec_of(w);
    std::set<uint64_t> hashes;
    for (int rank = 0; rank < w.tp; ++rank) {
      const Model model = build_model(spec, Mesh::of(spec, w.tp, rank));
      hashes.insert(make_program({spec, model, w.tp, {key_of(spec)}}, rank).hash);
    }
    CHECK(hashes.size() == 1);
  }
}
