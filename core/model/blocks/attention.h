// The attention half of a layer: out = in + attention(norm(in) Wqkv + bias) Wo + bias.
//
// qkv [N, (H + 2K) D] holds q | k | v by columns, in one product. With QK-norm (Qwen3) each head of q and k is
// normalised into a copy, for its backward needs the values before; rotation is in place. Selective recompute restores
// the normed input and attention itself. Each rank of tp has whole heads; a head of padding has weights of zero, but
// may see keys that are none, so its output is zeroed. Phase::generate: one row per sequence; keys and values are
// appended to the cache at row cache_position, which is also the row's position in the batch.
#pragma once
#include <optional>

#include "core/model/blocks/half_layer.h"
#include "core/ops/attention.h"
#include "core/ops/rope.h"

namespace trainer {

struct AttentionSpec {
  std::string name;                               // of the block: "layers.3.attention"
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // of this rank, padding included
  int64_t real_heads = 0;                         // heads behind them are padding
  int64_t window = 0;                             // 0: none
  WeightOrder order = WeightOrder::out_in;
  NormSpec norm;
  std::optional<RopeFrequencies> rope;
  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};
struct AttentionParams {
  ParamId norm = 0, qkv = 0, out = 0;
  std::optional<ParamId> norm_bias, qkv_bias, out_bias, q_norm, k_norm;
};

class AttentionBlock final : public Block {
 public:
  AttentionBlock(const StreamShape&, const AttentionSpec&, const AttentionParams&);
  BlockLayout layout() const override { return layout_; }
  void forward(BlockContext&, const BlockViews&) const override;
  void recompute(BlockContext&, const BlockViews&) const override;
  void backward_input(BlockContext&, const BlockViews&) const override;
  void backward_weight(BlockContext&, const BlockViews&) const override;

 private:
  struct Heads {  // columns of one buffer, [N, heads, D]; of qk alone, v is empty
    Tensor q, k, v;
  };
  Heads heads_of(const Tensor& qkv) const;
  Heads attended(const BlockViews&) const;  // what attention reads
  Tensor by_heads(const Tensor& t) const { return reshaped(t, {shape_.rows(), spec_.heads, spec_.head_dim}); }
  AttentionMask mask(const BlockViews&) const;
  float scale() const;

  void lay_out_params(const AttentionParams&);
  void lay_out_buffers();
  void project(BlockContext&, const BlockViews&) const;  // n -> qkv, heads normed and rotated
  void rotate(BlockContext&, const Tensor& rows, const BlockViews&, bool inverse) const;
  void attend(BlockContext&, const BlockViews&) const;
  void decode(BlockContext&, const BlockViews&) const;
  void finish(BlockContext&, const BlockViews&) const;  // attention's output -> out
  void attend_backward(BlockContext&, const BlockViews&) const;

  StreamShape shape_;
  AttentionSpec spec_;
  Linear linear_;
  BlockLayout layout_;
  HalfLayer half_;
  bool qk_norm_;
  // Indices into the layout's lists.
  size_t p_qkv_ = kNone, p_qkv_bias_ = kNone, p_q_norm_ = kNone, p_k_norm_ = kNone, p_out_ = kNone, p_out_bias_ = kNone;
  size_t qkv_ = kNone, att_ = kNone, lse_ = kNone, qk_ = kNone, q_rstd_ = kNone, k_rstd_ = kNone;
  size_t d_qkv_ = kNone, q_partials_ = kNone, k_partials_ = kNone, d_att_ = kNone, d_qk_ = kNone;
};

}  // namespace trainer
