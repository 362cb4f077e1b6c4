// Tensor parallelism as checkpoints see it: rows and columns cut, padded, and held by several ranks alike.
#include <catch2/catch.hpp>
#include <memory>

#include "io/restore.h"
#include "io/save.h"
#include "io/state_hash.h"
#include "tests/checkpoint/state.h"
#include "tests/support/thread_votes.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr int64_t kWidth = 6, kVocab = 13, kHeads = 4, kKvHeads = 2, kHead = 2;

struct Slicing {
  int tp = 1, shards = 1;
  int size() const { return tp * shards; }
  int kv_copies() const { return tp > kKvHeads ? tp / int(kKvHeads) : 1; }
};

Param::Piece piece(const std::string& tensor, Shape logical, const Rectangle& from, const Rectangle& to) {
  return {tensor, logical, box_of(from, 2), box_of(to, 2)};
}

// The vocabulary by rows, padded; a norm that all hold; q and k by heads; the projection behind them by columns.
std::vector<Param> params_of(const Slicing& s, int slice) {
  std::vector<Param> params;
  const int64_t rows = (kVocab + s.tp - 1) / s.tp, first = slice * rows, end = std::min(kVocab, first + rows);
  params.push_back(
      make_param("embedding", {rows, kWidth},
                 {piece("embed.weight", {kVocab, kWidth}, {first, end, 0, kWidth}, {0, end - first, 0, kWidth})}));

  params.push_back(make_param("norm", {kWidth}, {whole_piece("norm.weight", {kWidth})}));
  params.back().shared.push_back({0, kWidth, Axis::tp, false});

  const int64_t q = kHeads / s.tp * kHead, k = std::max<int64_t>(kKvHeads / s.tp, 1) * kHead;
  const int64_t q_at = slice * q, k_at = slice / s.kv_copies() * k;
  params.push_back(
      make_param("qk", {q + k, kWidth},
                 {piece("q.weight", {kHeads * kHead, kWidth}, {q_at, q_at + q, 0, kWidth}, {0, q, 0, kWidth}),
                  piece("k.weight", {kKvHeads * kHead, kWidth}, {k_at, k_at + k, 0, kWidth}, {q, q + k, 0, kWidth})}));
  if (s.kv_copies() > 1) params.back().shared.push_back({q * kWidth, (q + k) * kWidth, Axis::kv, false});

  params.push_back(make_param(
      "o", {kWidth, q}, {piece("o.weight", {kWidth, kHeads * kHead}, {0, kWidth, q_at, q_at + q}, {0, kWidth, 0, q})}));
  return params;
}

struct SlicedWorld {
  explicit SlicedWorld(const Slicing& s) : slicing(s) {
    for (int r = 0; r < s.size(); ++r) {
      const int slice = r % s.tp;
      ranks.push_back(std::make_unique<State>(params_of(s, slice), std::vector<std::vector<ParamId>>{{1, 0}, {2, 3}},
                                              /*with_master=*/true, /*cuts=*/1, Held{r / s.tp, s.shards}));
    }
  }
  StateView view(int rank) const {
    StateView v = ranks[size_t(rank)]->view();
    const int slice = rank % slicing.tp;
    v.first_of_tp = slice == 0;
    v.first_of_kv = slice % slicing.kv_copies() == 0;
    return v;
  }
  void fill(uint64_t seed) {
    for (auto& r : ranks) r->fill(seed);
  }
  uint64_t hash() const {
    uint64_t sum = 0;
    for (int r = 0; r < slicing.size(); ++r) sum += state_hash(view(r));
    return sum;
  }

  Slicing slicing;
  std::vector<std::unique_ptr<State>> ranks;
};

const std::vector<std::string> quiet(int ranks) { return std::vector<std::string>(size_t(ranks)); }

}  // namespace

TEST_CASE("slices of tensor parallelism load into any other slices") {
  const std::vector<Slicing> all{{1, 1}, {1, 3}, {2, 1}, {2, 2}, {4, 1}, {4, 3}};
  SlicedWorld one({1, 1});
  one.fill(1);
  for (const Slicing& a : all) {
    INFO("saved by tp " << a.tp << " shards " << a.shards);
    SlicedWorld from(a);
    from.fill(1);
    CHECK(from.hash() == one.hash());
    const TemporaryDirectory directory;
    REQUIRE(run_ranks(a.size(), [&](const Votes& votes) {
              Saver({directory.path, {}, 1, 2}, votes).save(from.view(votes.rank), run_at(1));
            }) == quiet(a.size()));
    CHECK(open_checkpoint(directory.path + "/step-1").manifest.state_hash == one.hash());
    for (const Slicing& b : all) {
      INFO("loaded by tp " << b.tp << " shards " << b.shards);
      SlicedWorld to(b), expected(b);
      expected.fill(1);
      REQUIRE(run_ranks(b.size(), [&](const Votes& votes) {
                check(resume_newest(directory.path, to.view(votes.rank), votes).has_value(), Exit::checkpoint,
                      "no step");
              }) == quiet(b.size()));
      for (int r = 0; r < b.size(); ++r) CHECK(to.ranks[size_t(r)]->bytes() == expected.ranks[size_t(r)]->bytes());
    }
  }
}

TEST_CASE("a part that two ranks save, or none, never gets a name") {
  SlicedWorld world({2, 1});
  world.fill(2);
  for (const bool both : {true, false}) {
    const TemporaryDirectory directory;
    const auto thrown = run_ranks(2, [&](const Votes& votes) {
      StateView view = world.view(votes.rank);
      view.first_of_tp = both;
      Saver({directory.path, {}, 1, 2}, votes).save(view, run_at(1));
    });
    CHECK_THAT(thrown[0], Catch::Contains("norm.weight") && Catch::Contains(both ? "overlap" : "hold 0 of 6"));
    CHECK(thrown[0] == thrown[1]);
    CHECK(list_steps(directory.path).empty());
  }
}
