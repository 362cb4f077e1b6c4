#include "core/model/blocks/head.h"

#include "core/ops/cross_entropy.h"

namespace trainer {

HeadBlock::HeadBlock(const StreamShape& shape, const HeadSpec& spec, const HeadParams& params)
    : shape_(shape),
      spec_(spec),
      layout_(named("head")),
      norm_(spec.norm, layout_, params.norm, params.norm_bias.value_or(0)) {
  p_table_ = append(layout_.params, params.table);
  BlockLayout& l = layout_;
  l.dtype = shape.dtype;
  l.in = {{shape.rows(), shape.width}};
  n_ = append(l.forward_work, shape.buffer(shape.width));
  statistics_ = append(l.forward_work, norm_.statistics(shape.rows(), Keep::always));
  d_n_ = append(l.forward_work, shape.buffer(shape.width));
  partials_ = append(l.forward_work, norm_.partials(shape.width));
  l.reads = field(BatchField::targets) | field(BatchField::weights);
  l.adds_outcome = l.grads_in_forward = true;
  l.has_input_half = l.has_weight_half = false;
}

void HeadBlock::forward(BlockContext& c, const BlockViews& v) const {
  norm_.forward(c.compute, v.work[n_], v.work[statistics_], v.in[0], v);
  if (c.phase == Phase::generate)
    Linear(WeightOrder::out_in).forward(c.compute, v.out[0], v.work[n_], v.params[p_table_]);
  else loss(c, v);
  if (c.phase != Phase::train) return;
  norm_.backward(c.compute,
                 {.d_x = v.d_in[0],
                  .partials = v.work[partials_],
                  .d_y = v.work[d_n_],
                  .x = v.in[0],
                  .statistics = v.work[statistics_],
                  .d_residual = {}},
                 v);
  norm_.weight_grad(c.compute, v.work[partials_], v);
}

void HeadBlock::loss(BlockContext& c, const BlockViews& v) const {
  const bool train = c.phase == Phase::train;
  const Gradient none;
  const Gradient& d_table = train ? v.grads[p_table_] : none;
  const Tensor& table = v.params[p_table_];
  launch(c.compute, LinearCrossEntropy{.d_x = train ? v.work[d_n_] : Tensor{},
                                       .d_weight = d_table.tensor,
                                       .x = v.work[n_],
                                       .weight = table,
                                       .targets = v.batch[BatchField::targets],
                                       .weights = v.batch[BatchField::weights],
                                       .outcome = v.outcome,
                                       .row_loss = {},
                                       .vocab = spec_.vocab,
                                       .chunk_rows = cross_entropy_rows(shape_.rows(), table.shape[0], shape_.dtype),
                                       .train = train,
                                       .accumulate = d_table.accumulate});
}

}  // namespace trainer
