#include "tests/model/run_ranks.h"

#include <exception>
#include <stdexcept>
#include <thread>

namespace trainer::test {
namespace {

const Param::Shared* shared_at(const Param& p, size_t i) {
  for (const Param::Shared& s : p.shared)
    if (int64_t(i) >= s.begin && int64_t(i) < s.end) return &s;
  return nullptr;
}

}  // namespace

RunRanks::RunRanks(const RunSpec& spec, int tp, bool sequence_parallel) : spec_(spec) {
  spec_.parallel.tp = tp;
  spec_.parallel.sequence_parallel = sequence_parallel;
  const auto point = std::make_shared<MeetingPoint>(tp);
  const Mesh mesh = Mesh::of(spec_, tp, 0);
  for (int r = 0; r < tp; ++r) ranks_.push_back(std::make_unique<RunModel>(spec_, mesh.at_slice(r), point));
}

template <class F>
Outcome RunRanks::on_all(F&& run) {
  std::vector<Outcome> outcomes(ranks_.size());
  std::vector<std::exception_ptr> errors(ranks_.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks_.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        outcomes[r] = run(*ranks_[r]);
      } catch (...) { errors[r] = std::current_exception(); }
    });
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
  Outcome sum{};
  for (const Outcome& o : outcomes) {
    sum.loss_sum += o.loss_sum;
    sum.tokens += o.tokens;
  }
  return sum;
}

Outcome RunRanks::train(const Sample& s, RecomputeLevel level, bool accumulate) {
  return on_all([&](RunModel& rank) { return rank.train(s, level, accumulate); });
}
Outcome RunRanks::evaluate(const Sample& s) {
  return on_all([&](RunModel& rank) { return rank.evaluate(s); });
}

template <class Of>
Tensors RunRanks::assemble(Of&& values_of, bool add_partial) const {
  Tensors tensors;
  std::map<std::string, std::vector<int>> holders;
  for (const auto& rank : ranks_)
    for (ParamId id = 0; id < rank->model().params.size(); ++id) {
      const Param& p = rank->model().params[id];
      const Values values = values_of(*rank, id);
      for (const Param::Piece& piece : p.pieces) {
        Values& whole = tensors[piece.tensor];
        std::vector<int>& held = holders[piece.tensor];
        whole.resize(size_t(piece.logical.elements()));
        held.resize(whole.size());
        for_piece(p.local, piece, [&](size_t i, size_t logical) {
          const Param::Shared* shared = shared_at(p, i);
          if (held[logical]++ == 0) whole[logical] = values[i];
          else if (!shared) throw std::runtime_error(piece.tensor + ": on several ranks, but not shared");
          else if (shared->partial && add_partial) whole[logical] += values[i];
          else if (whole[logical] != values[i]) throw std::runtime_error(piece.tensor + ": ranks differ");
        });
      }
    }
  for (const auto& [tensor, held] : holders)
    for (int n : held)
      if (n == 0) throw std::runtime_error(tensor + ": an element that no rank holds");
  return tensors;
}

Tensors RunRanks::parameters() const {
  return assemble([](RunModel& rank, ParamId id) { return rank.param(id).values(); }, false);
}
Tensors RunRanks::gradients() const {
  return assemble([](RunModel& rank, ParamId id) { return rank.grad(id).values(); }, true);
}

Values RunRanks::stream_grad() const {
  Values all;
  for (const auto& rank : ranks_) {
    const Values part = rank->stream_grad().values();
    if (!spec_.parallel.sequence_parallel) return part;
    all.insert(all.end(), part.begin(), part.end());
  }
  all.resize(size_t(spec_.train.micro_batch * spec_.data.seq_len * spec_.model.hidden_size));
  return all;
}

int64_t RunRanks::nonzero_padding() const {
  int64_t count = 0;
  for (const auto& rank : ranks_)
    for (ParamId id = 0; id < rank->model().params.size(); ++id) {
      const Param& p = rank->model().params[id];
      Values gradient = rank->grad(id).values();
      for (const Param::Piece& piece : p.pieces) for_piece(p.local, piece, [&](size_t i, size_t) { gradient[i] = 0; });
      for (double g : gradient) count += g != 0;
    }
  return count;
}

}  // namespace trainer::test
