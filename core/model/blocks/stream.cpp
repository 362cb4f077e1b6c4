#include "core/model/blocks/stream.h"

#include "core/base/hash.h"
#include "core/ops/elementwise.h"

namespace trainer {

StreamShape stream_shape(const RunSpec& spec) {
  return {.batch = spec.train.micro_batch,
          .seq_len = spec.data.seq_len,
          .width = spec.model.hidden_size,
          .max_seq_len = spec.model.max_seq_len,
          .dtype = spec.precision.compute == Precision::bf16 ? DType::bf16 : DType::f32,
          .documents = spec.data.packing == Packing::document,
          .dropout = float(spec.model.dropout)};
}

BranchDropout::BranchDropout(const StreamShape& shape, BlockLayout& layout)
    : rate_(shape.dropout), key_(hash_text(layout.name)) {
  if (!exists()) return;
  layout.reads |= field(BatchField::rows);
  layout.backward_input_reads |= field(BatchField::rows);
  layout.reads_control = true;
}

void BranchDropout::apply(Stream& stream, Tensor y, Tensor x, Tensor base, const BlockViews& v) const {
  launch(stream, Dropout{.y = y,
                         .x = x,
                         .base = base,
                         .rows = v.batch[BatchField::rows],
                         .control = v.control,
                         .key = key_,
                         .rate = rate_});
}

}  // namespace trainer
