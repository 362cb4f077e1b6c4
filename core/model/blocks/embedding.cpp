#include "core/model/blocks/embedding.h"

#include "core/ops/embedding.h"

namespace trainer {

EmbeddingBlock::EmbeddingBlock(const StreamShape& shape, ParamId table, std::optional<ParamId> positions)
    : shape_(shape), learned_positions_(positions.has_value()), layout_(named("embedding")), dropout_(shape, layout_) {
  layout_.params = {table};
  layout_.out = {{shape.rows(), shape.width}};
  layout_.dtype = shape.dtype;
  BatchMask reads = field(BatchField::tokens);
  if (positions) {
    layout_.params.push_back(*positions);
    if (shape.documents) reads |= field(BatchField::positions);
  }
  layout_.reads |= reads;
  layout_.backward_weight_reads = reads;
  layout_.has_input_half = dropout_.exists();
  layout_.weight_reads_d_out = !dropout_.exists();
  if (!dropout_.exists()) return;
  layout_.forward_work = {shape.buffer(shape.width)};
  layout_.stash = {shape.buffer(shape.width)};
}

void EmbeddingBlock::forward(BlockContext& c, const BlockViews& v) const {
  const bool drop = dropout_.acts(c.phase);
  launch(c.compute, Embedding{.out = drop ? v.work[0] : v.out[0],
                              .tokens = v.batch[BatchField::tokens],
                              .table = v.params[0],
                              .position_table = learned_positions_ ? v.params[1] : Tensor{},
                              .positions = learned_positions_ ? v.batch[BatchField::positions] : Tensor{},
                              .seq_len = shape_.seq_len});
  if (drop) dropout_.apply(c.compute, v.out[0], v.work[0], {}, v);
}

void EmbeddingBlock::backward_input(BlockContext& c, const BlockViews& v) const {
  if (dropout_.exists()) dropout_.apply(c.compute, v.stash[0], v.d_out[0], {}, v);
}

void EmbeddingBlock::backward_weight(BlockContext& c, const BlockViews& v) const {
  const Gradient none;
  const Gradient& positions = learned_positions_ ? v.grads[1] : none;
  launch(c.compute, EmbeddingGrad{.d_table = v.grads[0].tensor,
                                  .d_position_table = positions.tensor,
                                  .d_out = dropout_.exists() ? v.stash[0] : v.d_out[0],
                                  .tokens = v.batch[BatchField::tokens],
                                  .positions = learned_positions_ ? v.batch[BatchField::positions] : Tensor{},
                                  .seq_len = shape_.seq_len,
                                  .accumulate = v.grads[0].accumulate,
                                  .accumulate_positions = positions.accumulate});
}

}  // namespace trainer
