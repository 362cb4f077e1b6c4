#include "core/engine/host_feed.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/plan/layout.h"

namespace trainer {
namespace {

size_t place_bytes(int64_t rows) {  // of one micro-batch
  size_t bytes = 0;
  for (const DType dtype : kBatchDTypes) bytes += arena_aligned(size_t(rows) * size_of(dtype));
  return bytes;
}

}  // namespace

size_t staging_bytes(const Program& program, int64_t rows) {
  int most = 0;
  for (const auto& [key, plan] : program.plans) most = std::max(most, key.microbatches);
  return size_t(staging_turns(program) * most) * place_bytes(rows);
}

void HostFeed::fill(Stream& stream, Split split, int64_t step, int microbatch, const Batch& batch) {
  if (stream.kind() == DeviceKind::cuda) {
    stage(split, step, microbatch, batch);
    const Batch from = staged(step, microbatch, batch);
    for (int f = 0; f < kBatchFields; ++f)
      if (batch.fields[size_t(f)]) launch(stream, Upload{batch.fields[size_t(f)], from.fields[size_t(f)].data});
    return;
  }
  struct Args {
    HostFeed* feed;
    Split split;
    int64_t step;
    int microbatch;
    Batch batch;
  } args{this, split, step, microbatch, batch};
  static_assert(std::is_trivially_copyable_v<Args>);
  stream.submit(
      [](Stream&, const void* args) {
        const auto& a = *static_cast<const Args*>(args);
        a.feed->write(a.split, a.step, a.microbatch, a.batch);
      },
      &args, sizeof args);
}

void HostFeed::stage(Split split, int64_t step, int microbatch, const Batch& batch) {
  write(split, step, microbatch, staged(step, microbatch, batch));
}

Batch HostFeed::staged(int64_t step, int microbatch, const Batch& batch) const {
  const auto first = std::find_if(batch.fields.begin(), batch.fields.end(), [](const Tensor& t) { return bool(t); });
  check(first != batch.fields.end(), Exit::device, "[feed] a batch without fields");
  const size_t part = staging_.size() / size_t(turns_);
  const size_t begin = part * (size_t(step) % size_t(turns_)), end = begin + part;
  size_t at = begin + size_t(microbatch) * place_bytes(first->elements());
  Batch from;
  for (size_t f = 0; f < batch.fields.size(); ++f) {
    if (!batch.fields[f]) continue;
    const Tensor& to = batch.fields[f];
    check(at + to.bytes() <= end, Exit::device, "[feed] micro-batch {} does not fit into {} bytes of staging memory",
          microbatch, part);
    from.fields[f] = make_tensor(staging_.data() + at, to.dtype, to.shape);
    at += arena_aligned(to.bytes());
  }
  return from;
}

}  // namespace trainer
