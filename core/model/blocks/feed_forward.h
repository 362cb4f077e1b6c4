// The feed-forward half of a layer.
//   gelu:   out = in + gelu(norm(in) W1 + b1) W2 + b2
//   swiglu: out = in + swiglu(norm(in) W[gate | up]) Wdown, gate and up being one product
// Selective recompute restores the normed input and the activation.
#pragma once
#include <optional>

#include "core/model/blocks/linear.h"
#include "core/model/blocks/norm.h"
#include "core/model/blocks/stream.h"

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
  Tensor branch_grad(const BlockViews& v) const { return dropout_.exists() ? v.stash[d_branch_] : v.d_out[0]; }
  void lay_out_buffers();
  void project(BlockContext&, const BlockViews&) const;   // n -> up
  void activate(BlockContext&, const BlockViews&) const;  // up -> act
  void finish(BlockContext&, const BlockViews&) const;    // act -> out
  void activate_backward(BlockContext&, const BlockViews&) const;

  StreamShape shape_;
  FeedForwardSpec spec_;
  Linear linear_;
  BlockLayout layout_;
  Norm norm_;
  BranchDropout dropout_;
  // Indices into the layout's lists.
  size_t p_up_ = kNone, p_up_bias_ = kNone, p_down_ = kNone, p_down_bias_ = kNone;
  size_t n_ = kNone, statistics_ = kNone, up_ = kNone, act_ = kNone;
  size_t d_up_ = kNone, partials_ = kNone, d_branch_ = kNone;
  size_t branch_ = kNone, d_act_ = kNone, d_n_ = kNone;
};

}  // namespace trainer
