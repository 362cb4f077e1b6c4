// The first block: token rows, plus learned positions where the family has them, then dropout in training.
//
// Positions are the batch's where it gives them (documents; generation), else n % seq_len. Each rank of tp has a slice
// of the vocabulary and adds the rows it has; the first adds the positions. Where dropout or sequence parallelism stand
// behind it the block has an input half: it produces no d_in, only what backward_weight reads, in its stash.
#pragma once
#include <optional>

#include "core/model/blocks/stream.h"
#include "core/ops/vocabulary.h"

namespace trainer {

class EmbeddingBlock final : public Block {
 public:
  struct Params {
    ParamId table = 0;
    std::optional<ParamId> positions;
  };
  EmbeddingBlock(const StreamShape&, const VocabularySlice&, const Params&);
  BlockLayout layout() const override { return layout_; }
  void forward(BlockContext&, const BlockViews&) const override;
  void recompute(BlockContext&, const BlockViews&) const override {}
  void backward_input(BlockContext&, const BlockViews&) const override;
  void backward_weight(BlockContext&, const BlockViews&) const override;

 private:
  StreamShape shape_;
  VocabularySlice vocabulary_;
  bool learned_positions_;
  BlockLayout layout_;
  Slices slices_;
  Branch branch_;
};

}  // namespace trainer
