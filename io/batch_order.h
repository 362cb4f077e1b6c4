// Which sequences every micro-batch of one replica holds.
#pragma once
#include "core/engine/feed.h"
#include "io/dataset.h"
#include "io/step_sizes.h"

namespace trainer {

// One of `count` data-parallel replicas: it takes every count-th micro-batch of a step.
struct Replica {
  int index = 0, count = 1;
};

// Micro-batch `microbatch` of a training step, or of evaluation pass `step`.
struct BatchId {
  Split split = Split::train;
  int64_t step = 0;
  int microbatch = 0;
  bool operator==(const BatchId&) const = default;
};

class BatchOrder {
 public:
  BatchOrder(Dataset, const RunSpec&, Replica);
  int64_t rows() const { return micro_batch_; }
  int64_t seq_len() const { return seq_len_; }
  int64_t vocab_size() const { return vocab_size_; }
  bool packs_documents() const { return packing_ == Packing::document; }
  const StepSizes& sizes() const { return sizes_; }

  int64_t microbatches(int64_t step) const;  // of a training step, for this replica
  int64_t evaluation_passes() const;         // until all validation sequences were seen once; 0: there are none
  BatchId next(const BatchId&) const;        // training goes on for ever, evaluation starts again behind its last pass
  int64_t first_sequence(const BatchId&) const;
  int64_t filled_rows(const BatchId&) const;  // less than rows() at the end of an evaluation
  SampleId sample(Split, int64_t sequence) const;
  const DataView& view(Split, int source) const;
  // The sample's number when all samples of all sources are counted through.
  int64_t number(Split, const SampleId&) const;

 private:
  Dataset data_;
  int64_t micro_batch_, seq_len_, vocab_size_;
  Packing packing_;
  Replica replica_;
  int64_t evaluation_microbatches_;  // of a pass, per replica
  StepSizes sizes_;
  TrainOrder train_;
  ValidOrder valid_;
};

}  // namespace trainer
