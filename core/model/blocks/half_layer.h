// What both half layers have around their middle: out = in + branch(norm(in)), the last step of the branch being a
// product. The middle's first product is cut by columns over the ranks of tp, the last one by rows: here they meet.
#pragma once
#include <optional>

#include "core/model/blocks/linear.h"
#include "core/model/blocks/norm.h"
#include "core/model/blocks/stream.h"

namespace trainer {

struct HalfLayerSpec {
  NormSpec norm;
  WeightOrder order = WeightOrder::out_in;
};

class HalfLayer {
 public:
  // Appends the norm's parameters and its own buffers to the layout.
  HalfLayer(const StreamShape&, const HalfLayerSpec&, BlockLayout&, ParamId norm, std::optional<ParamId> norm_bias);

  void normalise(BlockContext&, const BlockViews&) const;  // in -> n
  Tensor normed(BlockContext&, const BlockViews&) const;   // all rows of n, in forward and recompute
  struct Product {
    Tensor x, weight, bias;  // x of all rows; bias may be empty
  };
  void finish(BlockContext&, const BlockViews&, const Product&) const;  // out = in + the branch

  // backward_input: from d_out to the branch's gradient, of all rows, which backward_weight finds too ...
  Tensor begin_backward(BlockContext&, const BlockViews&) const;
  // ... and from this rank's part of n's gradient, written here, to d_in.
  Tensor d_normed(const BlockViews& v) const { return slices_.rows_of(v.work[d_n_]); }
  void finish_backward(BlockContext&, const BlockViews&) const;

  // backward_weight: of the product that reads n, of the last product, of its bias where there is one, of the norm.
  void first_weight_grad(Stream&, const BlockViews&, size_t weight, const Tensor& d_y) const;
  void last_weight_grads(Stream&, const BlockViews&, size_t weight, size_t bias, const Tensor& x) const;
  void norm_weight_grad(Stream& s, const BlockViews& v) const { norm_.weight_grad(s, v.stash[partials_], v); }

 private:
  Tensor d_branch(const BlockViews& v) const { return branch_.always_direct() ? v.d_out[0] : v.stash[d_branch_]; }

  Slices slices_;
  Linear linear_;
  Norm norm_;
  Branch branch_;
  bool gathers_;
  // Indices into the layout's lists. `gathered` holds all rows of n, then of the branch; `all_n` all rows of n for
  // backward_weight: only this rank's rows are kept from forward to backward.
  size_t n_ = kNone, statistics_ = kNone, gathered_ = kNone;
  size_t all_n_ = kNone, d_branch_ = kNone, partials_ = kNone, d_n_ = kNone;
};

}  // namespace trainer
