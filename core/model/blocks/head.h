// The last block: final norm, then the projection to the vocabulary and cross-entropy in one operation.
//
// Phase::train adds loss and tokens to the outcome, writes d_in and adds to the weights' gradients, all in forward:
// logits exist for chunk_rows rows at a time. Phase::evaluate adds loss and tokens. Phase::generate computes neither:
// it writes the logits of all rows to out[0], f32 [N, padded vocabulary], which the layout does not list, for no plan
// of a training step has it; columns beyond the vocabulary hold zeros. The logits of a whole batch (`trainer eval`) are
// the other blocks in Phase::evaluate, then this one in Phase::generate.
#pragma once
#include <optional>

#include "core/model/blocks/linear.h"
#include "core/model/blocks/norm.h"
#include "core/model/blocks/stream.h"

namespace trainer {

// Rows of the embedding and of the head: a multiple of 64, so that no product has a ragged edge.
constexpr int64_t padded_vocab(int64_t vocab) { return (vocab + 63) / 64 * 64; }

struct HeadSpec {
  int64_t vocab = 0;
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
  void loss(BlockContext&, const BlockViews&) const;

  StreamShape shape_;
  HeadSpec spec_;
  BlockLayout layout_;
  Norm norm_;
  size_t p_table_ = kNone;
  size_t n_ = kNone, statistics_ = kNone, d_n_ = kNone, partials_ = kNone;  // in forward_work
};

}  // namespace trainer
