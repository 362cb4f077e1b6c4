// Attention as it is written down: all scores of a head are stored. For comparison only; training never runs it.
#pragma once
#include <functional>

#include "core/ops/attention.h"
#include "core/ops/matmul.h"

namespace trainer {

// One step of it: what it is called, what it costs, and the launches.
using NamedPart = std::function<void(const char* name, Cost, const std::function<void()>&)>;

// `scores` and (backward) `d_scores` are [batch * H, T, T] of q's dtype; backward reads the probabilities that forward
// left in `scores`.
void naive_attention(Stream&, const Attention&, Tensor scores, const NamedPart& part);
void naive_attention_grad(Stream&, const AttentionGrad&, Tensor scores, Tensor d_scores, const NamedPart& part);

}  // namespace trainer
