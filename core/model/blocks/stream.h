// What all blocks of a model share: the residual stream, how a micro-batch lies in it, and how the ranks of tp share
// it.
#pragma once
#include "core/model/block.h"
#include "core/plan/mesh.h"
#include "core/spec/run_spec.h"

namespace trainer {

// N = batch * seq_len rows of `width` in `dtype`. `documents`: the batch brings positions and segments. `dropout` acts
// in training on the embedding's output and on what both half layers add to the stream, never on attention's
// probabilities.
//
// Every rank of tp computes a slice of each product over all N rows. Between the products a rank holds the stream's
// rows whole, or under sequence parallelism stream_rows() = ceil(N / tp) of them from stream_rows() * slice on
// (Korthikanti et al. 2022): `tp` equal parts make up gathered_rows(), and what lies beyond N is zero.
struct StreamShape {
  int64_t batch = 1, seq_len = 1, width = 0, max_seq_len = 0;
  DType dtype = DType::bf16;
  bool documents = false;
  float dropout = 0;
  int64_t tp = 1, slice = 0;
  bool sequence_parallel = false;

  int64_t rows() const { return batch * seq_len; }
  int64_t stream_rows() const { return sequence_parallel ? (rows() + tp - 1) / tp : rows(); }
  int64_t gathered_rows() const { return sequence_parallel ? stream_rows() * tp : rows(); }
  int64_t first_row() const { return sequence_parallel ? stream_rows() * slice : 0; }
  // Of all rows; of this rank's part of the stream; of all parts.
  Buffer buffer(int64_t columns, Keep keep = Keep::always) const { return {{rows(), columns}, dtype, keep}; }
  Buffer stream_buffer(Keep keep = Keep::always) const { return {{stream_rows(), width}, dtype, keep}; }
  Buffer gathered_buffer() const { return {{gathered_rows(), width}, dtype}; }
};
StreamShape stream_shape(const RunSpec&, const Mesh&);

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

inline Tensor at(std::span<const Tensor> tensors, size_t index) { return index == kNone ? Tensor{} : tensors[index]; }

inline bool given(std::span<const Tensor> tensors) { return !tensors.empty() && tensors[0]; }

// Where the ranks of tp meet, before a product cut by columns and behind one cut by rows. `gathered` is a buffer of
// gathered_rows(): all rows, then padding.
class Slices {
 public:
  explicit Slices(const StreamShape& shape) : shape_(shape) {}
  Tensor rows_of(const Tensor& gathered) const { return row_part(gathered, 0, shape_.rows()); }
  Tensor own_rows(const Tensor& gathered) const {
    return row_part(gathered, shape_.first_row(), shape_.first_row() + shape_.stream_rows());
  }
  // What is added once to a sum over the ranks (a bias, the residual): by the first.
  Tensor once(const Tensor& t) const { return shape_.slice == 0 ? t : Tensor{}; }

  // All rows of this rank's `part` of the stream: the part itself, or gathered. The part may be own_rows(gathered).
  Tensor gather(BlockContext&, const Tensor& part, const Tensor& gathered) const;
  // The ranks' partial sums of all rows, added up in place: what this rank's stream has of them.
  Tensor sum(BlockContext&, const Tensor& gathered) const;

 private:
  StreamShape shape_;
};

// What a half layer adds to the stream: through dropout in training, with the same mask forward and backward, keyed by
// the block's name. All tensors have the stream's rows.
class Branch {
 public:
  // Declares the fields it reads.
  Branch(const StreamShape&, BlockLayout&);
  // The branch is the sum of the ranks' products and nothing stands between it and the stream: then a product writes
  // the stream itself, residual included.
  bool direct(Phase phase) const { return !shape_.sequence_parallel && !drops(phase); }
  bool always_direct() const { return !shape_.sequence_parallel && !has_dropout(); }
  bool has_dropout() const { return shape_.dropout > 0; }
  // y = base + x, x being masked and scaled in training; base may be empty.
  void add(BlockContext&, const Tensor& y, const Tensor& x, const Tensor& base, const BlockViews&) const;

 private:
  bool drops(Phase phase) const { return has_dropout() && phase == Phase::train; }
  void drop(Stream&, const Tensor& y, const Tensor& x, const Tensor& base, const BlockViews&) const;
  StreamShape shape_;
  uint64_t key_;
};

}  // namespace trainer
