// The head: a linear layer and cross-entropy in one, over chunks of rows, so that logits are never stored whole nor computed twice.
#pragma once
#include <algorithm>

#include "core/ops/kernel.h"

namespace trainer {

// logits = x W^T, x [N, C], weight [Vp, C] of which rows [0, vocab) are real (the others are padding, and score -infinity).
// outcome.loss_sum += sum of weights[n] * (logsumexp(logits[n]) - logits[n][targets[n]]); outcome.tokens += sum of weights[n].
// Where `train`: d_x = G W and d_weight (+)= G^T x with G = weights[n] * (softmax - onehot): gradients of the unnormalised sum.
// row_loss, where given, receives weights[n] * loss of each row (f32 [N]).
struct LinearCrossEntropy {
  static constexpr const char* kName = "linear_cross_entropy";
  Tensor d_x, d_weight;        // d_weight f32 [Vp, C]; both empty unless train
  Tensor x, weight, targets, weights, outcome, row_loss;   // targets i32 [N], weights f32 [N]
  int64_t vocab = 0;
  int64_t chunk_rows = 512;    // rows whose logits exist at one time, in the lane's scratch
  bool train = true, accumulate = false;
  Cost cost() const {
    const double product = 2.0 * double(x.shape[0]) * double(x.shape[1]) * double(weight.shape[0]);
    return {(train ? 3 : 1) * product, double(x.bytes() * (train ? 2 : 1) + weight.bytes() + (train ? d_weight.bytes() : 0))};
  }
};

// Rows per chunk: logits of at most 128 MiB, between 64 and all rows. A function of shapes only.
constexpr int64_t cross_entropy_rows(int64_t rows, int64_t padded_vocab, DType dtype) {
  const int64_t fit = (int64_t{128} << 20) / (padded_vocab * int64_t(size_of(dtype)));
  return std::clamp<int64_t>(fit / 64 * 64, 64, std::max<int64_t>(64, rows));
}

}  // namespace trainer
