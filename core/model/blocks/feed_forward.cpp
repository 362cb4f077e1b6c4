#include "core/model/blocks/feed_forward.h"

#include "core/ops/activation.h"

namespace trainer {

FeedForwardBlock::FeedForwardBlock(const StreamShape& shape, const FeedForwardSpec& spec,
                                   const FeedForwardParams& params)
    : shape_(shape),
      spec_(spec),
      linear_(spec.order),
      layout_(named(spec.name)),
      norm_(spec.norm, layout_, params.norm, params.norm_bias.value_or(0)),
      dropout_(shape, layout_) {
  const auto add = [&](const std::optional<ParamId>& id) { return id ? append(layout_.params, *id) : kNone; };
  p_up_ = add(params.up);
  p_up_bias_ = add(params.up_bias);
  p_down_ = add(params.down);
  p_down_bias_ = add(params.down_bias);
  lay_out_buffers();
  layout_.input_reads_in = true;
  layout_.weight_reads_d_out = !dropout_.exists();
}

void FeedForwardBlock::lay_out_buffers() {
  const int64_t N = shape_.rows(), C = shape_.width;
  BlockLayout& l = layout_;
  l.dtype = shape_.dtype;
  l.in = l.out = {{N, C}};
  n_ = append(l.saved, shape_.buffer(C, Keep::unless_selective));
  statistics_ = append(l.saved, norm_.statistics(N, Keep::unless_selective));
  up_ = append(l.saved, shape_.buffer(spec_.up_width(), Keep::unless_full));
  act_ = append(l.saved, shape_.buffer(spec_.width, Keep::unless_selective));
  d_up_ = append(l.stash, shape_.buffer(spec_.up_width()));
  partials_ = append(l.stash, norm_.partials(C));
  d_n_ = append(l.backward_work, shape_.buffer(C));
  if (spec_.activation == Activation::swiglu) d_act_ = append(l.backward_work, shape_.buffer(spec_.width));
  if (dropout_.exists()) {
    branch_ = append(l.forward_work, shape_.buffer(C));
    d_branch_ = append(l.stash, shape_.buffer(C));
  }
}

void FeedForwardBlock::project(BlockContext& c, const BlockViews& v) const {
  linear_.forward(c.compute, v.saved[up_], v.saved[n_], v.params[p_up_],
                  p_up_bias_ == kNone ? Tensor{} : v.params[p_up_bias_]);
}

void FeedForwardBlock::activate(BlockContext& c, const BlockViews& v) const {
  if (spec_.activation == Activation::gelu) launch(c.compute, Gelu{.y = v.saved[act_], .x = v.saved[up_]});
  else launch(c.compute, SwiGlu{.y = v.saved[act_], .gate_up = v.saved[up_]});
}

void FeedForwardBlock::finish(BlockContext& c, const BlockViews& v) const {
  const Tensor bias = p_down_bias_ == kNone ? Tensor{} : v.params[p_down_bias_];
  const bool drops = dropout_.acts(c.phase);
  linear_.forward(c.compute, drops ? v.work[branch_] : v.out[0], v.saved[act_], v.params[p_down_], bias,
                  drops ? Tensor{} : v.in[0]);
  if (drops) dropout_.apply(c.compute, v.out[0], v.work[branch_], v.in[0], v);
}

void FeedForwardBlock::forward(BlockContext& c, const BlockViews& v) const {
  norm_.forward(c.compute, v.saved[n_], v.saved[statistics_], v.in[0], v);
  project(c, v);
  activate(c, v);
  finish(c, v);
}

void FeedForwardBlock::recompute(BlockContext& c, const BlockViews& v) const {
  norm_.forward(c.compute, v.saved[n_], v.saved[statistics_], v.in[0], v);
  if (c.recompute == RecomputeLevel::full) project(c, v);
  activate(c, v);
  if (given(v.out)) finish(c, v);
}

// d_branch -> d_up.
void FeedForwardBlock::activate_backward(BlockContext& c, const BlockViews& v) const {
  const Tensor& d_up = v.stash[d_up_];
  const Tensor& d_act = spec_.activation == Activation::gelu ? d_up : v.work[d_act_];
  linear_.input_grad(c.compute, d_act, branch_grad(v), v.params[p_down_]);
  if (spec_.activation == Activation::gelu) launch(c.compute, GeluGrad{.d_x = d_up, .d_y = d_act, .x = v.saved[up_]});
  else launch(c.compute, SwiGluGrad{.d_gate_up = d_up, .d_y = d_act, .gate_up = v.saved[up_]});
}

void FeedForwardBlock::backward_input(BlockContext& c, const BlockViews& v) const {
  if (dropout_.exists()) dropout_.apply(c.compute, v.stash[d_branch_], v.d_out[0], {}, v);
  activate_backward(c, v);
  linear_.input_grad(c.compute, v.work[d_n_], v.stash[d_up_], v.params[p_up_]);
  norm_.backward(c.compute,
                 {.d_x = v.d_in[0],
                  .partials = v.stash[partials_],
                  .d_y = v.work[d_n_],
                  .x = v.in[0],
                  .statistics = v.saved[statistics_],
                  .d_residual = v.d_out[0]},
                 v);
}

void FeedForwardBlock::backward_weight(BlockContext& c, const BlockViews& v) const {
  Stream& s = c.compute;
  linear_.weight_grad(s, v.grads[p_down_], v.saved[act_], branch_grad(v));
  if (p_down_bias_ != kNone) sum_rows(s, v.grads[p_down_bias_], branch_grad(v));
  linear_.weight_grad(s, v.grads[p_up_], v.saved[n_], v.stash[d_up_]);
  if (p_up_bias_ != kNone) sum_rows(s, v.grads[p_up_bias_], v.stash[d_up_]);
  norm_.weight_grad(s, v.stash[partials_], v);
}

}  // namespace trainer
