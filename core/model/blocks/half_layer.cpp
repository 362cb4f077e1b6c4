#include "core/model/blocks/half_layer.h"

namespace trainer {

HalfLayer::HalfLayer(const StreamShape& shape, const HalfLayerSpec& spec, BlockLayout& l, ParamId norm,
                     std::optional<ParamId> norm_bias)
    : slices_(shape),
      linear_(spec.order),
      norm_(spec.norm, l, norm, norm_bias.value_or(0)),
      branch_(shape, l),
      gathers_(shape.sequence_parallel) {
  l.dtype = shape.dtype;
  l.in = l.out = {shape.stream_buffer().shape};
  l.input_reads_in = true;
  l.weight_reads_d_out = branch_.always_direct();
  n_ = append(l.saved, shape.stream_buffer(Keep::unless_selective));
  statistics_ = append(l.saved, norm_.statistics(shape.stream_rows(), Keep::unless_selective));
  partials_ = append(l.stash, norm_.partials(shape.width));
  d_n_ = append(l.backward_work, shape.gathered_buffer());
  if (!branch_.always_direct()) {
    gathered_ = append(l.forward_work, shape.gathered_buffer());
    d_branch_ = append(l.stash, shape.gathered_buffer());
  }
  if (gathers_) all_n_ = append(l.stash, shape.gathered_buffer());
}

void HalfLayer::normalise(BlockContext& c, const BlockViews& v) const {
  norm_.forward(c.compute, v.saved[n_], v.saved[statistics_], v.in[0], v);
}

Tensor HalfLayer::normed(BlockContext& c, const BlockViews& v) const {
  return slices_.gather(c, v.saved[n_], at(v.work, gathered_));
}

void HalfLayer::finish(BlockContext& c, const BlockViews& v, const Product& p) const {
  const bool direct = branch_.direct(c.phase);
  const Tensor& gathered = direct ? v.out[0] : v.work[gathered_];
  linear_.forward(c.compute, slices_.rows_of(gathered), p.x, p.weight, slices_.once(p.bias),
                  direct ? slices_.once(v.in[0]) : Tensor{});
  const Tensor sum = slices_.sum(c, gathered);
  if (!direct) branch_.add(c, v.out[0], sum, v.in[0], v);
}

Tensor HalfLayer::begin_backward(BlockContext& c, const BlockViews& v) const {
  if (branch_.always_direct()) return v.d_out[0];
  const Tensor own = slices_.own_rows(v.stash[d_branch_]);
  branch_.add(c, own, v.d_out[0], {}, v);
  slices_.gather(c, v.saved[n_], at(v.stash, all_n_));
  return slices_.gather(c, own, v.stash[d_branch_]);
}

void HalfLayer::finish_backward(BlockContext& c, const BlockViews& v) const {
  norm_.backward(c.compute,
                 {.d_x = v.d_in[0],
                  .partials = v.stash[partials_],
                  .d_y = slices_.sum(c, v.work[d_n_]),
                  .x = v.in[0],
                  .statistics = v.saved[statistics_],
                  .d_residual = v.d_out[0]},
                 v);
}

void HalfLayer::first_weight_grad(Stream& s, const BlockViews& v, size_t weight, const Tensor& d_y) const {
  linear_.weight_grad(s, v.grads[weight], gathers_ ? slices_.rows_of(v.stash[all_n_]) : v.saved[n_], d_y);
}

// Of the bias a rank adds up its own rows of the stream, not those of others.
void HalfLayer::last_weight_grads(Stream& s, const BlockViews& v, size_t weight, size_t bias, const Tensor& x) const {
  linear_.weight_grad(s, v.grads[weight], x, slices_.rows_of(d_branch(v)));
  if (bias != kNone) sum_rows(s, v.grads[bias], slices_.own_rows(d_branch(v)));
}

}  // namespace trainer
