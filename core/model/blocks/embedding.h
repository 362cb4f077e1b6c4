// The first block: token rows, plus learned positions where the family has them, then dropout in training.
//
// Positions are the batch's where it gives them (documents; generation), else n % seq_len. With dropout the block has
// an input half: it produces no d_in, only the masked d_out in its stash.
#pragma once
#include <optional>

#include "core/model/blocks/stream.h"

namespace trainer {

class EmbeddingBlock final : public Block {
 public:
  EmbeddingBlock(const StreamShape&, ParamId table, std::optional<ParamId> positions);
  BlockLayout layout() const override { return layout_; }
  void forward(BlockContext&, const BlockViews&) const override;
  void recompute(BlockContext&, const BlockViews&) const override {}
  void backward_input(BlockContext&, const BlockViews&) const override;
  void backward_weight(BlockContext&, const BlockViews&) const override;

 private:
  StreamShape shape_;
  bool learned_positions_;
  BlockLayout layout_;
  BranchDropout dropout_;
};

}  // namespace trainer
