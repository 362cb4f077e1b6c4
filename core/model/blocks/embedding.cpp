#include "core/model/blocks/embedding.h"

#include "core/ops/embedding.h"

namespace trainer {

EmbeddingBlock::EmbeddingBlock(const StreamShape& shape, const VocabularySlice& vocabulary, const Params& params)
    : shape_(shape),
      vocabulary_(vocabulary),
      learned_positions_(params.positions.has_value()),
      layout_(named("embedding")),
      slices_(shape),
      branch_(shape, layout_) {
  layout_.params = {params.table};
  layout_.out = {shape.stream_buffer().shape};
  layout_.dtype = shape.dtype;
  BatchMask reads = field(BatchField::tokens);
  if (params.positions) {
    layout_.params.push_back(*params.positions);
    if (shape.documents) reads |= field(BatchField::positions);
  }
  layout_.reads |= reads;
  layout_.backward_weight_reads = reads;
  layout_.has_input_half = !branch_.always_direct();
  layout_.weight_reads_d_out = branch_.always_direct();
  if (branch_.always_direct()) return;
  layout_.forward_work = {shape.gathered_buffer()};
  layout_.stash = {shape.gathered_buffer()};
}

void EmbeddingBlock::forward(BlockContext& c, const BlockViews& v) const {
  const bool direct = branch_.direct(c.phase);
  const Tensor& gathered = direct ? v.out[0] : v.work[0];
  launch(c.compute, Embedding{.out = slices_.rows_of(gathered),
                              .tokens = v.batch[BatchField::tokens],
                              .table = v.params[0],
                              .position_table = learned_positions_ ? slices_.once(v.params[1]) : Tensor{},
                              .positions = learned_positions_ ? v.batch[BatchField::positions] : Tensor{},
                              .seq_len = shape_.seq_len,
                              .slice = vocabulary_});
  const Tensor sum = slices_.sum(c, gathered);
  if (!direct) branch_.add(c, v.out[0], sum, {}, v);
}

void EmbeddingBlock::backward_input(BlockContext& c, const BlockViews& v) const {
  if (branch_.always_direct()) return;
  const Tensor own = slices_.own_rows(v.stash[0]);
  branch_.add(c, own, v.d_out[0], {}, v);
  slices_.gather(c, own, v.stash[0]);
}

void EmbeddingBlock::backward_weight(BlockContext& c, const BlockViews& v) const {
  const Gradient none;
  const Gradient& positions = learned_positions_ ? v.grads[1] : none;
  launch(c.compute, EmbeddingGrad{.d_table = v.grads[0].tensor,
                                  .d_position_table = positions.tensor,
                                  .d_out = branch_.always_direct() ? v.d_out[0] : slices_.rows_of(v.stash[0]),
                                  .tokens = v.batch[BatchField::tokens],
                                  .positions = learned_positions_ ? v.batch[BatchField::positions] : Tensor{},
                                  .seq_len = shape_.seq_len,
                                  .accumulate = v.grads[0].accumulate,
                                  .accumulate_positions = positions.accumulate,
                                  .slice = vocabulary_});
}

}  // namespace trainer
