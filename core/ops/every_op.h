// Every operation, for who installs a device's kernels.
#pragma once
#include "core/ops/ops.h"

namespace trainer {

// visit.template operator()<Op>() for each.
template <class Visit>
void for_every_op(const Visit& visit) {
  const auto each = [&]<class... Ops>() { (visit.template operator()<Ops>(), ...); };
  each.template
  operator()<Begin, Note, Tell, Stamp, Agree, Trust, Judge, SetAside, MatMul, RmsNorm, RmsNormGrad, LayerNorm, LayerNormGrad, Rope, Attention,
             AttentionGrad, AttentionDecode, Gelu, GeluGrad, SwiGlu, SwiGluGrad, Embedding, EmbeddingGrad, LogitRecords,
             CrossEntropy, Copy, Upload, Add, Scale, Zero, ColumnSum, Dropout, SquaredNorm, AdamW>();
}

}  // namespace trainer
