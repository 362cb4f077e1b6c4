// Normalisations of rows. Statistics and arithmetic are f32 whatever the dtype of x and y.
//
// x is [N, C], or [N, G, D] to normalise each of G groups of D by itself (QK-norm); then `rstd` is [N, G] and weight [D].
// Backward: d_x = d_residual + J^T d_y, and the sums over rows for weight (and bias) come as partial sums of kNormPartials fixed
// blocks of rows, [kNormPartials, C] (LayerNorm: [2 * kNormPartials, C], weight's first): their order never depends on threads.
// `ColumnSum` adds them up, which belongs to the weight half of the backward.
#pragma once
#include "core/ops/kernel.h"

namespace trainer {

inline constexpr int64_t kNormPartials = 16;

// sum = x + residual where `residual` is given (sum may be x); y = rmsnorm(sum or x) * weight (Zhang, Sennrich 2019, eq. 4).
struct RmsNorm {
  static constexpr const char* kName = "rms_norm";
  Tensor y, rstd, x, weight;   // rstd f32
  Tensor residual, sum;        // both or neither
  float epsilon = 1e-5f;
  Cost cost() const { return {4.0 * double(x.elements()), double(x.bytes() + y.bytes() + residual.bytes() * 2 * (residual ? 1 : 0))}; }
};

struct RmsNormGrad {
  static constexpr const char* kName = "rms_norm_grad";
  Tensor d_x, partials;        // partials f32 [kNormPartials, C or D]
  Tensor d_y, x, weight, rstd;
  Tensor d_residual;           // empty, or what is added to d_x (may be d_x itself)
  Cost cost() const { return {8.0 * double(x.elements()), double(d_x.bytes() + d_y.bytes() + x.bytes() + (d_residual ? d_residual.bytes() : 0))}; }
};

// y = (x - mean) / sqrt(var + epsilon) * weight + bias (Ba et al. 2016), of x + residual where it is given.
struct LayerNorm {
  static constexpr const char* kName = "layer_norm";
  Tensor y, mean, rstd, x, weight, bias;   // mean, rstd f32 [N]
  Tensor residual, sum;
  float epsilon = 1e-5f;
  Cost cost() const { return {6.0 * double(x.elements()), double(x.bytes() + y.bytes() + residual.bytes() * 2 * (residual ? 1 : 0))}; }
};

struct LayerNormGrad {
  static constexpr const char* kName = "layer_norm_grad";
  Tensor d_x, partials;        // partials f32 [2 * kNormPartials, C]
  Tensor d_y, x, weight, mean, rstd;
  Tensor d_residual;
  Cost cost() const { return {11.0 * double(x.elements()), double(d_x.bytes() + d_y.bytes() + x.bytes() + (d_residual ? d_residual.bytes() : 0))}; }
};

}  // namespace trainer
