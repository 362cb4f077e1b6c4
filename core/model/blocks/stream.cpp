#include "core/model/blocks/stream.h"

#include <algorithm>

#include "core/base/hash.h"
#include "core/ops/elementwise.h"

namespace trainer {

StreamShape stream_shape(const RunSpec& spec, const Mesh& mesh) {
  return {.batch = spec.train.micro_batch,
          .seq_len = spec.data.seq_len,
          .width = spec.model.hidden_size,
          .max_seq_len = spec.model.max_seq_len,
          .dtype = spec.precision.compute == Precision::bf16 ? DType::bf16 : DType::f32,
          .documents = spec.data.packing == Packing::document,
          .dropout = float(spec.model.dropout),
          .tp = mesh.tp,
          .slice = mesh.slice,
          .sequence_parallel = spec.parallel.sequence_parallel};
}

Tensor Slices::gather(BlockContext& c, const Tensor& part, const Tensor& gathered) const {
  if (!shape_.sequence_parallel) return part;
  c.groups.on(Axis::tp, Lane::compute).all_gather(c.compute, part, gathered);
  return rows_of(gathered);
}

Tensor Slices::sum(BlockContext& c, const Tensor& gathered) const {
  Comm& group = c.groups.on(Axis::tp, Lane::compute);
  if (!shape_.sequence_parallel) {
    group.all_reduce(c.compute, gathered);
    return gathered;
  }
  if (const int64_t N = shape_.rows(); N < gathered.rows())
    launch(c.compute, Zero{row_part(gathered, N, gathered.rows())});
  group.reduce_scatter(c.compute, gathered, own_rows(gathered));
  return own_rows(gathered);
}

Branch::Branch(const StreamShape& shape, BlockLayout& layout) : shape_(shape), key_(hash_text(layout.name)) {
  if (!has_dropout()) return;
  layout.reads |= field(BatchField::rows);
  layout.backward_input_reads |= field(BatchField::rows);
  layout.reads_control = true;
}

void Branch::add(BlockContext& c, const Tensor& y, const Tensor& x, const Tensor& base, const BlockViews& v) const {
  if (drops(c.phase)) drop(c.compute, y, x, base, v);
  else if (base) launch(c.compute, Add{y, x, base});
  else launch(c.compute, Copy{y, x});
}

// The batch names the rows of the whole micro-batch; padding behind them stays zero.
void Branch::drop(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& base, const BlockViews& v) const {
  const int64_t first = std::min(shape_.first_row(), shape_.rows());
  const int64_t real = std::min(shape_.stream_rows(), shape_.rows() - first);
  if (real > 0)
    launch(stream, Dropout{.y = row_part(y, 0, real),
                           .x = row_part(x, 0, real),
                           .base = base ? row_part(base, 0, real) : base,
                           .rows = row_part(v.batch[BatchField::rows], first, first + real),
                           .control = v.control,
                           .key = key_,
                           .rate = shape_.dropout});
  if (real < y.rows()) launch(stream, Zero{row_part(y, real, y.rows())});
}

}  // namespace trainer
