// A model cut over the ranks of a tp group, each a thread, seen as the whole it stands for.
#pragma once
#include <map>
#include <string>

#include "tests/model/run_model.h"

namespace trainer::test {

using Tensors = std::map<std::string, Values>;  // by name, whole

class RunRanks {
 public:
  RunRanks(const RunSpec&, int tp, bool sequence_parallel);
  int size() const { return int(ranks_.size()); }
  RunModel& rank(int r) { return *ranks_[size_t(r)]; }

  // Summed over the ranks. Throws what the first rank that failed threw.
  Outcome train(const Sample&, RecomputeLevel = RecomputeLevel::none, bool accumulate = false);
  Outcome evaluate(const Sample&);

  // Put together by boxes. Throws std::runtime_error, naming the tensor, where an element has no rank, or several that
  // are not declared shared, or differ.
  Tensors parameters() const;
  // The same, partial sums added up.
  Tensors gradients() const;
  // Gradient of the embedding's output, [N, C].
  Values stream_grad() const;
  // Gradients outside of all pieces that are not exactly zero.
  int64_t nonzero_padding() const;

 private:
  template <class F>
  Outcome on_all(F&& run);
  template <class Of>
  Tensors assemble(Of&& values_of, bool add_partial) const;

  RunSpec spec_;
  std::vector<std::unique_ptr<RunModel>> ranks_;
};

}  // namespace trainer::test
