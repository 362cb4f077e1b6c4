// States of planned worlds, with every rank's memory in this process.
#pragma once
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "app/checkpoints.h"
#include "io/state_hash.h"
#include "parallel/planner.h"
#include "tests/checkpoint/state.h"
#include "tests/plan/worlds.h"
#include "tests/support/thread_votes.h"

namespace trainer::test {

struct Layout {
  int dp = 1, zero = 0, zero_shard = 0;  // 0: all
  int pp = 1, tp = 1;
  Precision compute = Precision::bf16;
  Family family = Family::llama;
  std::string name() const {
    return fmt::format("pp {} tp {} dp {} zero {} shard {} {}", pp, tp, dp, zero, zero_shard,
                       compute == Precision::bf16 ? "bf16" : "fp32");
  }
};

inline RunSpec spec_of_layout(const Layout& l) {
  RunSpec spec = spec_of({.pp = l.pp, .dp = l.dp, .zero = l.zero, .family = l.family, .compute = l.compute});
  spec.model.hidden_size = 28;  // sizes that no number of ranks divides
  spec.model.head_dim = 7;
  spec.model.ffn_hidden_size = 37;
  spec.model.vocab_size = 97;
  if (l.family == Family::llama) spec.model.num_kv_heads = 2;  // replicated by tp 4
  spec.parallel.dp = l.dp;
  spec.parallel.tp = l.tp;
  if (l.zero_shard > 0) spec.parallel.zero_shard = l.zero_shard;
  return spec;
}

// Every rank's state over its own memory.
class StateOfWorld {
 public:
  explicit StateOfWorld(const Layout& l) {
    const RunSpec spec = spec_of_layout(l);
    const int world = l.dp * l.pp * l.tp;
    const Model model = build_model(spec, Mesh::of(spec, world, 0));
    const std::vector<PlanKey> keys{{StepKind::train, 2, spec.data.seq_len}};
    std::vector<Program> programs = make_programs({spec, model, world, keys});
    for (int r = 0; r < world; ++r) {
      const Mesh mesh = Mesh::of(spec, world, r);
      ranks_.push_back(
          std::unique_ptr<Planned>(new Planned{spec, mesh, build_model(spec, mesh), std::move(programs[size_t(r)])}));
      arenas_.emplace_back(ranks_.back()->program.arena_bytes);
    }
  }

  int size() const { return int(ranks_.size()); }
  std::vector<std::byte>& arena(int rank) { return arenas_[size_t(rank)]; }
  StateView view(int rank) { return state_view(*ranks_[size_t(rank)], arena(rank)); }
  void fill(uint64_t seed) {
    for (int r = 0; r < size(); ++r) fill_state(view(r), seed);
  }
  uint64_t hash() {
    uint64_t sum = 0;
    for (int r = 0; r < size(); ++r) sum += state_hash(view(r));
    return sum;
  }
  bool equals(StateOfWorld& other) { return arenas_ == other.arenas_; }

 private:
  std::vector<std::unique_ptr<Planned>> ranks_;
  std::vector<std::vector<std::byte>> arenas_;
};

inline std::vector<std::string> save(StateOfWorld& world, const std::string& directory, int64_t step) {
  return run_ranks(world.size(), [&](const Votes& votes) {
    Saver({directory, {}, 1, 2}, votes).save(world.view(votes.rank), run_at(step));
  });
}

struct Loads {
  std::vector<std::string> thrown;
  std::vector<int64_t> step;  // by rank; -1: none
  std::vector<std::string> refused;
};
inline Loads resume(StateOfWorld& world, const std::string& directory) {
  Loads o{{}, std::vector<int64_t>(size_t(world.size()), -1), std::vector<std::string>(size_t(world.size()))};
  o.thrown = run_ranks(world.size(), [&](const Votes& votes) {
    const auto resumed = resume_newest(directory, world.view(votes.rank), votes);
    if (!resumed) return;
    o.step[size_t(votes.rank)] = resumed->checkpoint.manifest.run.step;
    for (const Refusal& r : resumed->refused) o.refused[size_t(votes.rank)] += r.why;
  });
  return o;
}

inline bool all_quiet(const std::vector<std::string>& thrown) {
  for (const std::string& t : thrown)
    if (!t.empty()) UNSCOPED_INFO(t);
  return std::all_of(thrown.begin(), thrown.end(), [](const auto& t) { return t.empty(); });
}
template <class T>
bool all_equal(const std::vector<T>& values, const T& wanted) {
  return std::all_of(values.begin(), values.end(), [&](const T& v) { return v == wanted; });
}

}  // namespace trainer::test
