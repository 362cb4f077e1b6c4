// What all blocks of a model share: the residual stream and how a micro-batch lies in it.
#pragma once
#include "core/model/block.h"
#include "core/spec/run_spec.h"

namespace trainer {

// N = batch * seq_len rows of `width` in `dtype`. `documents`: the batch brings positions and segments. `dropout` acts
// in training on the embedding's output and on what both half layers add to the stream, never on attention's
// probabilities.
struct StreamShape {
  int64_t batch = 1, seq_len = 1, width = 0, max_seq_len = 0;
  DType dtype = DType::bf16;
  bool documents = false;
  float dropout = 0;
  int64_t rows() const { return batch * seq_len; }
  Buffer buffer(int64_t columns, Keep keep = Keep::always) const { return {{rows(), columns}, dtype, keep}; }
};
StreamShape stream_shape(const RunSpec&);

inline BlockLayout named(std::string name) {
  BlockLayout layout;
  layout.name = std::move(name);
  return layout;
}

// The index of what a variant of a block has not.
inline constexpr size_t kNone = size_t(-1);
// Appends, and says where.
template <class T>
size_t append(std::vector<T>& list, T item) {
  list.push_back(std::move(item));
  return list.size() - 1;
}

inline bool given(std::span<const Tensor> tensors) { return !tensors.empty() && tensors[0]; }

// Dropout of one branch: the same mask forward and backward, keyed by the block's name.
class BranchDropout {
 public:
  // Declares the fields it reads.
  BranchDropout(const StreamShape&, BlockLayout&);
  bool acts(Phase phase) const { return rate_ > 0 && phase == Phase::train; }
  bool exists() const { return rate_ > 0; }
  // y = base + mask(x) / (1 - rate); base may be empty.
  void apply(Stream&, Tensor y, Tensor x, Tensor base, const BlockViews&) const;

 private:
  float rate_;
  uint64_t key_;
};

}  // namespace trainer
