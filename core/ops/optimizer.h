// The update of a bucket, and the norm it is clipped by.
#pragma once
#include "core/ops/kernel.h"

namespace trainer {

// outcome.norm2 += sum of g^2 (f64 over fixed pieces in order); outcome.nonfinite += 1 where that is not finite.
struct SquaredNorm {
  static constexpr const char* kName = "squared_norm";
  Tensor g, outcome;
  Cost cost() const { return {2.0 * double(g.elements()), double(g.bytes())}; }
};

// Decoupled weight decay (Loshchilov, Hutter 2019), bias correction as in Adam (Kingma, Ba 2015):
//   g' = g * control.factor;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2
//   w = w (1 - lr decay) - lr (m / bias1) / (sqrt(v / bias2) + epsilon)
// decay is weight_decay for elements before `decayed`, 0 for the others.
// master, m, v f32; g f32 or bf16; weight bf16 (a rounded copy of master) or empty (master is the weight). control.skip: no change.
struct AdamW {
  static constexpr const char* kName = "adamw";
  Tensor master, weight, m, v, g, control;
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0;
  int64_t decayed = 0;
  Cost cost() const {
    return {12.0 * double(master.elements()), 2.0 * double(master.bytes() + m.bytes() + v.bytes()) + double(g.bytes() + (weight ? weight.bytes() : 0))};
  }
};

// to = from, unless control.skip: what an update is about to change. f32, contiguous, as many elements.
struct SetAside {
  static constexpr const char* kName = "set_aside";
  Tensor to, from, control;
  Cost cost() const { return {0, double(to.bytes() + from.bytes())}; }
};

}  // namespace trainer
