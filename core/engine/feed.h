// Where batches come from.
#pragma once
#include "core/model/block.h"

namespace trainer {

enum class Split : uint8_t { train, valid };

class Feed {
 public:
  virtual ~Feed() = default;
  // Fills the non-empty fields of `batch` for micro-batch `microbatch` of `step` (train), or of evaluation pass `step`
  // (valid), on the stream's lane, in its order. Rows beyond the data are padded: token 0, target 0, weight 0.
  virtual void fill(Stream&, Split, int64_t step, int microbatch, const Batch& batch) = 0;
  // Adds the hash of all that was filled for training step `step` to the outcome's data_hash. A feed that has none,
  // adds none.
  virtual void note_hash(Stream&, int64_t /*step*/, Tensor /*outcome*/) {}
};

}  // namespace trainer
