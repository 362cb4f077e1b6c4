#include "core/model/blocks/feed_forward.h"

#include "core/ops/activation.h"

namespace trainer {

FeedForwardBlock::FeedForwardBlock(const StreamShape& shape, const FeedForwardSpec& spec,
                                   const FeedForwardParams& params)
    : spec_(spec),
      linear_(spec.order),
      layout_(named(spec.name)),
      half_(shape, {spec.norm, spec.order}, layout_, params.norm, params.norm_bias) {
  const auto add = [&](const std::optional<ParamId>& id) { return id ? append(layout_.params, *id) : kNone; };
  p_up_ = add(params.up);
  p_up_bias_ = add(params.up_bias);
  p_down_ = add(params.down);
  p_down_bias_ = add(params.down_bias);
  up_ = append(layout_.saved, shape.buffer(spec_.up_width(), Keep::unless_full));
  act_ = append(layout_.saved, shape.buffer(spec_.width, Keep::unless_selective));
  d_up_ = append(layout_.stash, shape.buffer(spec_.up_width()));
  if (spec_.activation == Activation::swiglu) d_act_ = append(layout_.backward_work, shape.buffer(spec_.width));
}

void FeedForwardBlock::project(BlockContext& c, const BlockViews& v) const {
  linear_.forward(c.compute, v.saved[up_], half_.normed(c, v), v.params[p_up_], at(v.params, p_up_bias_));
}

void FeedForwardBlock::activate(BlockContext& c, const BlockViews& v) const {
  if (spec_.activation == Activation::gelu) launch(c.compute, Gelu{.y = v.saved[act_], .x = v.saved[up_]});
  else launch(c.compute, SwiGlu{.y = v.saved[act_], .gate_up = v.saved[up_]});
}

void FeedForwardBlock::finish(BlockContext& c, const BlockViews& v) const {
  half_.finish(c, v, {v.saved[act_], v.params[p_down_], at(v.params, p_down_bias_)});
}

void FeedForwardBlock::forward(BlockContext& c, const BlockViews& v) const {
  half_.normalise(c, v);
  project(c, v);
  activate(c, v);
  finish(c, v);
}

void FeedForwardBlock::recompute(BlockContext& c, const BlockViews& v) const {
  half_.normalise(c, v);
  if (c.recompute == RecomputeLevel::full) project(c, v);
  activate(c, v);
  if (given(v.out)) finish(c, v);
}

// d_branch -> d_up.
void FeedForwardBlock::activate_backward(BlockContext& c, const BlockViews& v, const Tensor& d_branch) const {
  const Tensor& d_up = v.stash[d_up_];
  const Tensor& d_act = spec_.activation == Activation::gelu ? d_up : v.work[d_act_];
  linear_.input_grad(c.compute, d_act, d_branch, v.params[p_down_]);
  if (spec_.activation == Activation::gelu) launch(c.compute, GeluGrad{.d_x = d_up, .d_y = d_act, .x = v.saved[up_]});
  else launch(c.compute, SwiGluGrad{.d_gate_up = d_up, .d_y = d_act, .gate_up = v.saved[up_]});
}

void FeedForwardBlock::backward_input(BlockContext& c, const BlockViews& v) const {
  activate_backward(c, v, half_.begin_backward(c, v));
  linear_.input_grad(c.compute, half_.d_normed(v), v.stash[d_up_], v.params[p_up_]);
  half_.finish_backward(c, v);
}

void FeedForwardBlock::backward_weight(BlockContext& c, const BlockViews& v) const {
  half_.last_weight_grads(c.compute, v, p_down_, p_down_bias_, v.saved[act_]);
  half_.first_weight_grad(c.compute, v, p_up_, v.stash[d_up_]);
  if (p_up_bias_ != kNone) sum_rows(c.compute, v.grads[p_up_bias_], v.stash[d_up_]);
  half_.norm_weight_grad(c.compute, v);
}

}  // namespace trainer
