// The feed-forward half of a layer.
//   gelu:   out = in + gelu(norm(in) W1 + b1) W2 + b2
//   swiglu: out = in + swiglu(norm(in) W[gate | up]) Wdown, gate and up being one product
// Selective recompute restores the normed input and the activation.
#pragma once
#include <optional>

#include "core/model/blocks/half_layer.h"

namespace trainer {

enum class Activation : uint8_t { gelu, swiglu };
struct FeedForwardSpec {
  std::string name;   // of the block: "layers.3.feed_forward"
  int64_t width = 0;  // F, of this rank
  Activation activation = Activation::swiglu;
  WeightOrder order = WeightOrder::out_in;
  NormSpec norm;
  int64_t up_width() const { return activation == Activation::swiglu ? 2 * width : width; }
};
struct FeedForwardParams {
  ParamId norm = 0, up = 0, down = 0;
  std::optional<ParamId> norm_bias, up_bias, down_bias;
};

class FeedForwardBlock final : public Block {
 public:
  FeedForwardBlock(const StreamShape&, const FeedForwardSpec&, const FeedForwardParams&);
  BlockLayout layout() const override { return layout_; }
  void forward(BlockContext&, const BlockViews&) const override;
  void recompute(BlockContext&, const BlockViews&) const override;
  void backward_input(BlockContext&, const BlockViews&) const override;
  void backward_weight(BlockContext&, const BlockViews&) const override;

 private:
  void project(BlockContext&, const BlockViews&) const;   // n -> up
  void activate(BlockContext&, const BlockViews&) const;  // up -> act
  void finish(BlockContext&, const BlockViews&) const;    // act -> out
  void activate_backward(BlockContext&, const BlockViews&, const Tensor& d_branch) const;

  FeedForwardSpec spec_;
  Linear linear_;
  BlockLayout layout_;
  HalfLayer half_;
  // Indices into the layout's lists.
  size_t p_up_ = kNone, p_up_bias_ = kNone, p_down_ = kNone, p_down_bias_ = kNone;
  size_t up_ = kNone, act_ = kNone, d_up_ = kNone, d_act_ = kNone;
};

}  // namespace trainer
