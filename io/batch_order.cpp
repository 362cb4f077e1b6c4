#include "io/batch_order.h"

#include <algorithm>

#include "core/base/error.h"

namespace trainer {

BatchOrder::BatchOrder(Dataset data, const RunSpec& spec, Replica replica)
    : data_(std::move(data)),
      micro_batch_(spec.train.micro_batch),
      seq_len_(spec.data.seq_len),
      vocab_size_(spec.model.vocab_size),
      packing_(spec.data.packing),
      replica_(replica),
      evaluation_microbatches_(evaluation_microbatches(spec)),
      sizes_(spec),
      train_(data_.train, data_.weights, spec.data.seed),
      valid_(data_.valid, spec.train.eval_sequences) {
  for (const int64_t step : sizes_.changes())
    check(sizes_.sequences(step) % (micro_batch_ * replica_.count) == 0, Exit::spec,
          "step {}: a global batch of {} sequences is not a multiple of train.micro_batch {} x {} replicas", step,
          sizes_.sequences(step), micro_batch_, replica_.count);
}

int64_t BatchOrder::microbatches(int64_t step) const {
  return sizes_.sequences(step) / (micro_batch_ * replica_.count);
}

int64_t BatchOrder::evaluation_passes() const {
  const int64_t per_pass = micro_batch_ * replica_.count * evaluation_microbatches_;
  return (valid_.sequences() + per_pass - 1) / per_pass;
}

BatchId BatchOrder::next(const BatchId& id) const {
  const bool valid = id.split == Split::valid;
  if (id.microbatch + 1 < (valid ? evaluation_microbatches_ : microbatches(id.step)))
    return {id.split, id.step, id.microbatch + 1};
  return {id.split, valid && id.step + 1 == evaluation_passes() ? 0 : id.step + 1, 0};
}

int64_t BatchOrder::first_sequence(const BatchId& id) const {
  const int64_t before = id.split == Split::train ? sizes_.sequences_before(id.step) : 0;
  const int64_t pass = id.microbatch + (id.split == Split::train ? 0 : id.step * evaluation_microbatches_);
  return before + (pass * replica_.count + replica_.index) * micro_batch_;
}

int64_t BatchOrder::filled_rows(const BatchId& id) const {
  if (id.split == Split::train) return micro_batch_;
  return std::clamp(valid_.sequences() - first_sequence(id), int64_t{0}, micro_batch_);
}

SampleId BatchOrder::sample(Split split, int64_t sequence) const {
  return split == Split::train ? train_.at(sequence) : valid_.at(sequence);
}

const DataView& BatchOrder::view(Split split, int source) const {
  return (split == Split::train ? data_.train : data_.valid)[size_t(source)];
}

int64_t BatchOrder::number(Split split, const SampleId& id) const {
  int64_t number = id.sample;
  for (int source = 0; source < id.source; ++source) number += view(split, source).samples();
  return number;
}

}  // namespace trainer
