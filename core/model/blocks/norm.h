// The norm at the door of a half layer: RMSNorm or LayerNorm, one interface.
#pragma once
#include "core/model/block.h"

namespace trainer {

struct NormSpec {
  bool layer_norm = false;  // with mean and bias
  float epsilon = 1e-5f;
};

// Where a block keeps what its norm needs: indices into layout().params, and the statistics: rstd f32 [N], or mean |
// rstd f32 [2, N].
class Norm {
 public:
  // Appends the norm's parameters to those of the layout.
  Norm(const NormSpec&, BlockLayout&, ParamId weight, ParamId bias);
  Buffer statistics(int64_t rows, Keep keep) const;
  Buffer partials(int64_t width) const;

  // y = norm(x).
  void forward(Stream&, Tensor y, Tensor statistics, Tensor x, const BlockViews&) const;
  // d_x = d_residual + J^T d_y, and the weights' partial sums.
  struct Backward {
    Tensor d_x, partials, d_y, x, statistics, d_residual;
  };
  void backward(Stream&, const Backward&, const BlockViews&) const;
  // The parameters' gradients from the partial sums.
  void weight_grad(Stream&, Tensor partials, const BlockViews&) const;

 private:
  NormSpec spec_;
  size_t weight_, bias_;
};

}  // namespace trainer
