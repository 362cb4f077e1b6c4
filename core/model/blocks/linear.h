// A linear layer's four products, for weights stored [out, in] (the usual) or [in, out] (GPT-2's Conv1D).
#pragma once
#include "core/model/block.h"

namespace trainer {

enum class WeightOrder : uint8_t { out_in, in_out };

// x [N, in], y [N, out], weight [out, in] or [in, out].
class Linear {
 public:
  explicit Linear(WeightOrder order) : out_in_(order == WeightOrder::out_in) {}
  // y = x W + bias + residual; the last two may be empty.
  void forward(Stream&, Tensor y, Tensor x, Tensor weight, Tensor bias = {}, Tensor residual = {}) const;
  // d_x = d_y W^T.
  void input_grad(Stream&, Tensor d_x, Tensor d_y, Tensor weight) const;
  void weight_grad(Stream&, const Gradient&, Tensor x, Tensor d_y) const;

 private:
  bool out_in_;
};

// The gradient of a vector that was added to, or multiplied into, every row: sum over rows of x [N, C].
void sum_rows(Stream&, const Gradient&, Tensor x);

}  // namespace trainer
