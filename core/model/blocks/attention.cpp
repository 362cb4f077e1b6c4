#include "core/model/blocks/attention.h"

#include <cmath>

#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"

namespace trainer {

AttentionBlock::AttentionBlock(const StreamShape& shape, const AttentionSpec& spec, const AttentionParams& params)
    : shape_(shape),
      spec_(spec),
      linear_(spec.order),
      layout_(named(spec.name)),
      half_(shape, {spec.norm, spec.order}, layout_, params.norm, params.norm_bias),
      qk_norm_(params.q_norm.has_value()) {
  lay_out_params(params);
  lay_out_buffers();
  if (shape_.documents) {
    const BatchMask reads = field(BatchField::segments) | (spec_.rope ? field(BatchField::positions) : 0);
    layout_.reads |= reads;
    layout_.backward_input_reads |= reads;
  }
}

void AttentionBlock::lay_out_params(const AttentionParams& params) {
  const auto add = [&](const std::optional<ParamId>& id) { return id ? append(layout_.params, *id) : kNone; };
  p_qkv_ = add(params.qkv);
  p_qkv_bias_ = add(params.qkv_bias);
  p_q_norm_ = add(params.q_norm);
  p_k_norm_ = add(params.k_norm);
  p_out_ = add(params.out);
  p_out_bias_ = add(params.out_bias);
}

void AttentionBlock::lay_out_buffers() {
  const int64_t N = shape_.rows(), H = spec_.heads, K = spec_.kv_heads, D = spec_.head_dim;
  BlockLayout& l = layout_;
  qkv_ = append(l.saved, shape_.buffer(spec_.qkv_width(), Keep::unless_full));
  att_ = append(l.saved, shape_.buffer(spec_.q_width(), Keep::unless_selective));
  lse_ = append(l.saved, Buffer{{shape_.batch, H, shape_.seq_len}, DType::f32, Keep::unless_selective});
  d_qkv_ = append(l.stash, shape_.buffer(spec_.qkv_width()));
  d_att_ = append(l.backward_work, shape_.buffer(spec_.q_width()));
  if (qk_norm_) {
    qk_ = append(l.saved, shape_.buffer(spec_.q_width() + spec_.kv_width(), Keep::unless_full));
    q_rstd_ = append(l.saved, Buffer{{N, H}, DType::f32, Keep::unless_full});
    k_rstd_ = append(l.saved, Buffer{{N, K}, DType::f32, Keep::unless_full});
    q_partials_ = append(l.stash, Buffer{{kNormPartials, D}, DType::f32});
    k_partials_ = append(l.stash, Buffer{{kNormPartials, D}, DType::f32});
    d_qk_ = append(l.backward_work, shape_.buffer(spec_.q_width() + spec_.kv_width()));
  }
  l.cache = {{{shape_.batch, shape_.max_seq_len, spec_.kv_width()}, shape_.dtype},
             {{shape_.batch, shape_.max_seq_len, spec_.kv_width()}, shape_.dtype}};
}

AttentionBlock::Heads AttentionBlock::heads_of(const Tensor& qkv) const {
  const int64_t q = spec_.q_width(), kv = spec_.kv_width();
  Heads h{column_part(qkv, 0, q, spec_.heads), column_part(qkv, q, q + kv, spec_.kv_heads), {}};
  if (qkv.shape[1] == spec_.qkv_width()) h.v = column_part(qkv, q + kv, q + 2 * kv, spec_.kv_heads);
  return h;
}

AttentionBlock::Heads AttentionBlock::attended(const BlockViews& v) const {
  Heads h = heads_of(v.saved[qkv_]);
  if (!qk_norm_) return h;
  const Heads normed = heads_of(v.saved[qk_]);
  return {normed.q, normed.k, h.v};
}

AttentionMask AttentionBlock::mask(const BlockViews& v) const {
  return {spec_.window, shape_.documents ? v.batch[BatchField::segments] : Tensor{}};
}

float AttentionBlock::scale() const { return 1 / std::sqrt(float(spec_.head_dim)); }

void AttentionBlock::project(BlockContext& c, const BlockViews& v) const {
  const Tensor& qkv = v.saved[qkv_];
  linear_.forward(c.compute, qkv, half_.normed(c, v), v.params[p_qkv_], at(v.params, p_qkv_bias_));
  if (qk_norm_) {
    const Heads from = heads_of(qkv), to = heads_of(v.saved[qk_]);
    const auto normalise = [&](Tensor y, Tensor rstd, Tensor x, Tensor weight) {
      launch(c.compute, RmsNorm{.y = y,
                                .rstd = rstd,
                                .x = x,
                                .weight = weight,
                                .residual = {},
                                .sum = {},
                                .epsilon = spec_.norm.epsilon});
    };
    normalise(to.q, v.saved[q_rstd_], from.q, v.params[p_q_norm_]);
    normalise(to.k, v.saved[k_rstd_], from.k, v.params[p_k_norm_]);
  }
  rotate(c, qk_norm_ ? v.saved[qk_] : qkv, v, false);
}

// In rows that begin with q and k.
void AttentionBlock::rotate(BlockContext& c, const Tensor& rows, const BlockViews& v, bool inverse) const {
  if (!spec_.rope) return;
  const bool generates = c.phase == Phase::generate;
  launch(c.compute, Rope{.x = column_part(rows, 0, spec_.q_width() + spec_.kv_width(), spec_.heads + spec_.kv_heads),
                         .positions = v.batch[BatchField::positions],
                         .seq_len = generates ? shape_.max_seq_len : shape_.seq_len,
                         .frequencies = *spec_.rope,
                         .inverse = inverse});
}

void AttentionBlock::attend(BlockContext& c, const BlockViews& v) const {
  const Heads h = attended(v);
  launch(c.compute, Attention{.out = by_heads(v.saved[att_]),
                              .lse = v.saved[lse_],
                              .q = h.q,
                              .k = h.k,
                              .v = h.v,
                              .mask = mask(v),
                              .batch = shape_.batch,
                              .scale = scale()});
  if (spec_.real_heads < spec_.heads)
    launch(c.compute, Zero{column_part(v.saved[att_], spec_.real_heads * spec_.head_dim, spec_.q_width())});
}

// Appends this row's keys and values to the cache, then looks at all of it.
void AttentionBlock::decode(BlockContext& c, const BlockViews& v) const {
  assert(shape_.seq_len == 1 && c.cache_position < shape_.max_seq_len);
  assert(!spec_.rope || v.batch[BatchField::positions]);
  const Heads h = attended(v);
  const int64_t width = spec_.kv_width();
  for (int64_t b = 0; b < shape_.batch; ++b) {
    const int64_t at = (b * shape_.max_seq_len + c.cache_position) * width;
    const auto row = [&](const Tensor& t) { return make_tensor(row_part(t, b, b + 1).data, t.dtype, {width}); };
    launch(c.compute, Copy{flat_part(v.cache[0], at, at + width), row(h.k)});
    launch(c.compute, Copy{flat_part(v.cache[1], at, at + width), row(h.v)});
  }
  launch(c.compute, AttentionDecode{.out = by_heads(v.saved[att_]),
                                    .q = h.q,
                                    .k_cache = v.cache[0],
                                    .v_cache = v.cache[1],
                                    .length = c.cache_position + 1,
                                    .window = spec_.window,
                                    .kv_heads = spec_.kv_heads,
                                    .scale = scale()});
}

void AttentionBlock::finish(BlockContext& c, const BlockViews& v) const {
  half_.finish(c, v, {v.saved[att_], v.params[p_out_], at(v.params, p_out_bias_)});
}

void AttentionBlock::forward(BlockContext& c, const BlockViews& v) const {
  half_.normalise(c, v);
  project(c, v);
  if (c.phase == Phase::generate) decode(c, v);
  else attend(c, v);
  finish(c, v);
}

void AttentionBlock::recompute(BlockContext& c, const BlockViews& v) const {
  half_.normalise(c, v);
  if (c.recompute == RecomputeLevel::full) project(c, v);
  attend(c, v);
  if (given(v.out)) finish(c, v);
}

// d_att -> d_qkv: through attention, the rotation and QK-norm.
void AttentionBlock::attend_backward(BlockContext& c, const BlockViews& v) const {
  const Heads h = attended(v), d_qkv = heads_of(v.stash[d_qkv_]);
  const Heads d = qk_norm_ ? heads_of(v.work[d_qk_]) : d_qkv;
  launch(c.compute, AttentionGrad{.d_q = d.q,
                                  .d_k = d.k,
                                  .d_v = d_qkv.v,
                                  .d_out = by_heads(v.work[d_att_]),
                                  .out = by_heads(v.saved[att_]),
                                  .lse = v.saved[lse_],
                                  .q = h.q,
                                  .k = h.k,
                                  .v = h.v,
                                  .mask = mask(v),
                                  .batch = shape_.batch,
                                  .scale = scale()});
  rotate(c, qk_norm_ ? v.work[d_qk_] : v.stash[d_qkv_], v, true);
  if (!qk_norm_) return;
  const Heads x = heads_of(v.saved[qkv_]);
  const auto normalise = [&](Tensor d_x, Tensor partials, Tensor d_y, Tensor x_, Tensor weight, Tensor rstd) {
    launch(c.compute, RmsNormGrad{d_x, partials, d_y, x_, weight, rstd, {}});
  };
  normalise(d_qkv.q, v.stash[q_partials_], d.q, x.q, v.params[p_q_norm_], v.saved[q_rstd_]);
  normalise(d_qkv.k, v.stash[k_partials_], d.k, x.k, v.params[p_k_norm_], v.saved[k_rstd_]);
}

void AttentionBlock::backward_input(BlockContext& c, const BlockViews& v) const {
  linear_.input_grad(c.compute, v.work[d_att_], half_.begin_backward(c, v), v.params[p_out_]);
  attend_backward(c, v);
  linear_.input_grad(c.compute, half_.d_normed(v), v.stash[d_qkv_], v.params[p_qkv_]);
  half_.finish_backward(c, v);
}

void AttentionBlock::backward_weight(BlockContext& c, const BlockViews& v) const {
  Stream& s = c.compute;
  half_.last_weight_grads(s, v, p_out_, p_out_bias_, v.saved[att_]);
  half_.first_weight_grad(s, v, p_qkv_, v.stash[d_qkv_]);
  if (p_qkv_bias_ != kNone) sum_rows(s, v.grads[p_qkv_bias_], v.stash[d_qkv_]);
  if (qk_norm_) {
    sum_rows(s, v.grads[p_q_norm_], v.stash[q_partials_]);
    sum_rows(s, v.grads[p_k_norm_], v.stash[k_partials_]);
  }
  half_.norm_weight_grad(s, v);
}

}  // namespace trainer
