#include "core/model/blocks/linear.h"

#include "core/ops/elementwise.h"
#include "core/ops/matmul.h"

namespace trainer {

void Linear::forward(Stream& stream, Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor residual) const {
  launch(stream, MatMul{.c = y, .a = x, .b = weight, .bias = bias, .residual = residual, .transpose_b = out_in_});
}

void Linear::input_grad(Stream& stream, Tensor d_x, Tensor d_y, Tensor weight) const {
  launch(stream, MatMul{.c = d_x, .a = d_y, .b = weight, .bias = {}, .residual = {}, .transpose_b = !out_in_});
}

void Linear::weight_grad(Stream& stream, const Gradient& gradient, Tensor x, Tensor d_y) const {
  launch(stream, MatMul{.c = gradient.tensor,
                        .a = out_in_ ? d_y : x,
                        .b = out_in_ ? x : d_y,
                        .bias = {},
                        .residual = {},
                        .transpose_a = true,
                        .accumulate = gradient.accumulate});
}

void sum_rows(Stream& stream, const Gradient& gradient, Tensor x) {
  launch(stream, ColumnSum{gradient.tensor, x, gradient.accumulate});
}

}  // namespace trainer
