// Cross-entropy over a vocabulary cut into slices, from logits of a chunk of rows, without bringing the logits together: each rank
// makes a small record of each row, the records are gathered, and every rank has the loss and the gradient of its own logits
// (Shoeybi et al. 2019, section 3).
#pragma once
#include <algorithm>

#include "core/ops/kernel.h"
#include "core/ops/vocabulary.h"

namespace trainer {

inline constexpr int64_t kLogitRecord = 3;

// records[n] = the largest of the row's logits, the sum of exp(logit - largest), and the target's logit (0 where it is in another
// slice). logits [N, Vp], of which columns [0, slice.count) are real; records f32 [N, kLogitRecord]; targets i32 [N], each within
// [0, slice.vocab).
struct LogitRecords {
  static constexpr const char* kName = "logit_records";
  Tensor records, logits, targets;
  VocabularySlice slice;
  Cost cost() const { return {3.0 * double(logits.elements()), double(logits.bytes() + records.bytes())}; }
};

// outcome.loss_sum += sum of weights[n] * (logsumexp(row n) - target's logit), outcome.tokens += sum of weights[n], where outcome is
// given. Where `train`, logits become gradients of the unnormalised sum: weights[n] * (softmax - onehot), padding zero.
// records f32 [ranks, N, kLogitRecord], combined in the order of ranks; weights f32 [N].
// row_loss, where given, receives weights[n] * loss of each row (f32 [N]).
struct CrossEntropy {
  static constexpr const char* kName = "cross_entropy";
  Tensor logits, records, targets, weights, outcome, row_loss;
  VocabularySlice slice;
  bool train = true;
  Cost cost() const {
    return {train ? 3.0 * double(logits.elements()) : 0.0, (train ? 2.0 * double(logits.bytes()) : 0) + double(records.bytes())};
  }
};

// Rows per chunk: logits of at most 128 MiB, between 64 and all rows. A function of shapes only.
constexpr int64_t cross_entropy_rows(int64_t rows, int64_t padded_vocab, DType dtype) {
  const int64_t fit = (int64_t{128} << 20) / (padded_vocab * int64_t(size_of(dtype)));
  return std::min(rows, std::max<int64_t>(64, fit / 64 * 64));
}

}  // namespace trainer
