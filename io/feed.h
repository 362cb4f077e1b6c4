// Batches from token files.
//
// `stream` packing: sample i is tokens [i*T, i*T + T] of the file, whatever documents they belong to; positions count
// from 0 to T - 1, there is one segment. `document` packing: the same samples, so no index is built; a document begins
// a new segment, counted from 0 in each sample, and positions begin again at 0, also where a document goes on from the
// sample before. Where a document's last token stands, the target would be another document's first token: its weight
// is 0.
#pragma once
#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "core/engine/host_feed.h"
#include "io/batch_order.h"
#include "io/prefetch.h"

namespace trainer {

// Rows carry `rows` = global sequence number * T + position in the sample. Reading runs ahead on a thread; errors of
// the data (a file changed under the run, an id outside the vocabulary) are thrown where the batch is
// written, as Error(data) with file and byte offset.
class TokenFeed final : public HostFeed {
 public:
  TokenFeed(Dataset, const RunSpec&, Replica = {});

  NoteCall hash_note() const override;

  int64_t evaluation_passes() const { return order_.evaluation_passes(); }
  int64_t microbatches(int64_t step) const { return order_.microbatches(step); }
  const StepSizes& sizes() const { return order_.sizes(); }

  // How long the lane waited for data since this was last asked.
  double waited_seconds();
  // Of the sequences this replica trained on in `step`: a sum over them, so neither micro-batches nor their order
  // matter, and the sum over replicas is the step's hash. REQUIRES: all micro-batches of `step` were filled, and
  // at most 15 steps since.
  uint64_t data_hash(int64_t step) const;
  // Samples of the step, in the order of micro-batches and rows, numbered through all training sources.
  std::vector<int64_t> sample_ids(int64_t step) const;

 private:
  struct StepHash {
    int64_t step = -1;
    std::vector<bool> holds;  // by micro-batch: a schedule may fill them in another order, and some of them twice
    uint64_t hash = 0;
  };
  static constexpr size_t kRemembered = 16;
  // Batches that are asked for in order have been read before; any other order works, too, and waits.
  void write(Split, int64_t step, int microbatch, const Batch&) override;
  void remember(const ReadBatch&);

  BatchOrder order_;
  Prefetch prefetch_;
  std::atomic<int64_t> waited_nanoseconds_{0};
  mutable std::mutex mutex_;
  std::array<StepHash, kRemembered> hashes_;
};

}  // namespace trainer
