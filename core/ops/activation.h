// Activations of the feed-forward half.
#pragma once
#include "core/ops/kernel.h"

namespace trainer {

// y = gelu(x), the tanh form (Hendrycks, Gimpel 2016): x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3).
struct Gelu {
  static constexpr const char* kName = "gelu";
  Tensor y, x;
  Cost cost() const { return {10.0 * double(x.elements()), double(x.bytes() + y.bytes())}; }
};
// d_x = d_y * gelu'(x); d_x may be d_y.
struct GeluGrad {
  static constexpr const char* kName = "gelu_grad";
  Tensor d_x, d_y, x;
  Cost cost() const { return {15.0 * double(x.elements()), double(x.bytes() + d_y.bytes() + d_x.bytes())}; }
};

// y [N, F] = silu(gate) * up, gate_up [N, 2F] = gate | up (Shazeer 2020).
struct SwiGlu {
  static constexpr const char* kName = "swiglu";
  Tensor y, gate_up;
  Cost cost() const { return {6.0 * double(y.elements()), double(y.bytes() + gate_up.bytes())}; }
};
// d_gate_up [N, 2F]; it may be gate_up itself.
struct SwiGluGrad {
  static constexpr const char* kName = "swiglu_grad";
  Tensor d_gate_up, d_y, gate_up;
  Cost cost() const { return {12.0 * double(d_y.elements()), double(d_y.bytes() + 2 * gate_up.bytes())}; }
};

}  // namespace trainer
