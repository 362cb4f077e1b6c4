// The last block: final norm, then the projection to the vocabulary and cross-entropy, over chunks of rows.
//
// Phase::train adds loss and tokens to the outcome, writes d_in and adds to the weights' gradients, all in forward:
// logits exist for one chunk of rows at a time. Phase::evaluate adds loss and tokens. Phase::generate computes neither:
// it writes the logits of all rows to out[0], f32 [N, padded vocabulary], which the layout does not list, for no plan
// of a training step has it; columns beyond the vocabulary hold zeros. The logits of a whole batch (`trainer eval`) are
// the other blocks in Phase::evaluate, then this one in Phase::generate.
//
// Each rank of tp has a slice of the vocabulary; what it knows of a row's logits is gathered, the logits are not. The
// first rank adds to the outcome.
#pragma once
#include <optional>

#include "core/model/blocks/linear.h"
#include "core/model/blocks/norm.h"
#include "core/model/blocks/stream.h"
#include "core/ops/vocabulary.h"

namespace trainer {

// Rows of the embedding and of the head: a multiple of 64, so that no product has a ragged edge.
constexpr int64_t padded_vocab(int64_t vocab) { return (vocab + 63) / 64 * 64; }

struct HeadSpec {
  VocabularySlice vocabulary;
  int64_t padded = 0;  // rows of the table
  NormSpec norm;
};
struct HeadParams {
  ParamId norm = 0, table = 0;  // table [padded_vocab, C]: the embedding's where they are tied
  std::optional<ParamId> norm_bias;
};

class HeadBlock final : public Block {
 public:
  HeadBlock(const StreamShape&, const HeadSpec&, const HeadParams&);
  BlockLayout layout() const override { return layout_; }
  void forward(BlockContext&, const BlockViews&) const override;
  void recompute(BlockContext&, const BlockViews&) const override {}
  void backward_input(BlockContext&, const BlockViews&) const override {}
  void backward_weight(BlockContext&, const BlockViews&) const override {}

 private:
  // Of n, all rows: loss, and where the phase trains d_n and the table's gradient.
  void loss(BlockContext&, const BlockViews&, const Tensor& n) const;
  void chunk_loss(BlockContext&, const BlockViews&, const Tensor& logits, int64_t begin) const;

  StreamShape shape_;
  HeadSpec spec_;
  Linear linear_{WeightOrder::out_in};
  BlockLayout layout_;
  Slices slices_;
  Norm norm_;
  size_t p_table_ = kNone;
  // In forward_work.
  size_t n_ = kNone, statistics_ = kNone, d_n_ = kNone, partials_ = kNone, logits_ = kNone, records_ = kNone;
};

}  // namespace trainer
