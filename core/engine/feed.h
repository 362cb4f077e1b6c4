// Where batches come from.
#pragma once
#include "core/model/block.h"
#include "core/ops/control.h"

namespace trainer {

enum class Split : uint8_t { train, valid };

class Feed {
 public:
  virtual ~Feed() = default;
  // Fills the non-empty fields of `batch` for micro-batch `microbatch` of `step` (train), or of evaluation pass `step`
  // (valid), on the stream's lane, in its order. Rows beyond the data are padded: token 0, target 0, weight 0.
  virtual void fill(Stream&, Split, int64_t step, int microbatch, const Batch& batch) = 0;
  // The host's part of fill(): for a step whose lanes' part is a Graph. On devices whose arena the host does not reach.
  virtual void stage(Split, int64_t step, int microbatch, const Batch& batch) = 0;
  // Says, once the step's batches are filled, the hash of all of them: what is added to the outcome's data_hash. A feed
  // that has none has nothing to read.
  virtual NoteCall hash_note() const { return {}; }
};

}  // namespace trainer
