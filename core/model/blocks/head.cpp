#include "core/model/blocks/head.h"

#include <algorithm>

#include "core/ops/cross_entropy.h"

namespace trainer {

HeadBlock::HeadBlock(const StreamShape& shape, const HeadSpec& spec, const HeadParams& params)
    : shape_(shape),
      spec_(spec),
      layout_(named("head")),
      slices_(shape),
      norm_(spec.norm, layout_, params.norm, params.norm_bias.value_or(0)) {
  p_table_ = append(layout_.params, params.table);
  BlockLayout& l = layout_;
  l.dtype = shape.dtype;
  l.in = {shape.stream_buffer().shape};
  n_ = append(l.forward_work, shape.gathered_buffer());
  statistics_ = append(l.forward_work, norm_.statistics(shape.stream_rows(), Keep::always));
  d_n_ = append(l.forward_work, shape.gathered_buffer());
  partials_ = append(l.forward_work, norm_.partials(shape.width));
  const int64_t columns = spec.padded, rows = cross_entropy_rows(shape.rows(), columns, shape.dtype);
  logits_ = append(l.forward_work, Buffer{{rows, columns}, shape.dtype});
  records_ = append(l.forward_work, Buffer{{shape.tp, rows, kLogitRecord}, DType::f32});
  l.reads = field(BatchField::targets) | field(BatchField::weights);
  l.adds_outcome = l.grads_in_forward = true;
  l.has_input_half = l.has_weight_half = false;
}

void HeadBlock::forward(BlockContext& c, const BlockViews& v) const {
  const Tensor own = slices_.own_rows(v.work[n_]);
  norm_.forward(c.compute, own, v.work[statistics_], v.in[0], v);
  const Tensor n = slices_.gather(c, own, v.work[n_]);
  if (c.phase == Phase::generate) return linear_.forward(c.compute, v.out[0], n, v.params[p_table_]);
  loss(c, v, n);
  if (c.phase != Phase::train) return;
  norm_.backward(c.compute,
                 {.d_x = v.d_in[0],
                  .partials = v.work[partials_],
                  .d_y = slices_.sum(c, v.work[d_n_]),
                  .x = v.in[0],
                  .statistics = v.work[statistics_],
                  .d_residual = {}},
                 v);
  norm_.weight_grad(c.compute, v.work[partials_], v);
}

void HeadBlock::loss(BlockContext& c, const BlockViews& v, const Tensor& n) const {
  for (int64_t begin = 0, end = 0; begin < n.rows(); begin = end) {
    end = std::min(n.rows(), begin + v.work[logits_].rows());
    const Tensor x = row_part(n, begin, end), logits = row_part(v.work[logits_], 0, end - begin);
    linear_.forward(c.compute, logits, x, v.params[p_table_]);
    chunk_loss(c, v, logits, begin);
    if (c.phase != Phase::train) continue;
    linear_.input_grad(c.compute, row_part(v.work[d_n_], begin, end), logits, v.params[p_table_]);
    const Gradient& table = v.grads[p_table_];
    linear_.weight_grad(c.compute, {table.tensor, table.accumulate || begin > 0}, x, logits);
  }
}

// The loss of rows from `begin` on; in training their logits become gradients.
void HeadBlock::chunk_loss(BlockContext& c, const BlockViews& v, const Tensor& logits, int64_t begin) const {
  const auto rows = [&](BatchField f) { return row_part(v.batch[f], begin, begin + logits.rows()); };
  const Tensor records = make_tensor(v.work[records_].data, DType::f32, {shape_.tp, logits.rows(), kLogitRecord});
  const Tensor own = reshaped(row_part(records, shape_.slice, shape_.slice + 1), {logits.rows(), kLogitRecord});
  launch(c.compute, LogitRecords{own, logits, rows(BatchField::targets), spec_.vocabulary});
  c.groups.on(Axis::tp, Lane::compute).all_gather(c.compute, own, records);
  launch(c.compute, CrossEntropy{.logits = logits,
                                 .records = records,
                                 .targets = rows(BatchField::targets),
                                 .weights = rows(BatchField::weights),
                                 .outcome = slices_.once(v.outcome),
                                 .row_loss = {},
                                 .slice = spec_.vocabulary,
                                 .train = c.phase == Phase::train});
}

}  // namespace trainer
