// Reads micro-batches ahead of the step, on a thread of its own, into buffers that are allocated once.
#pragma once
#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "io/batch_order.h"
#include "io/file_engine.h"

namespace trainer {

// A micro-batch as it was read: rows of T + 1 tokens.
struct ReadBatch {
  BatchId id;
  int64_t first_sequence = 0, filled_rows = 0;
  std::vector<int32_t> tokens;           // [rows, T + 1]
  std::vector<uint8_t> document_begins;  // [rows, T + 1], 1 where a document begins; empty unless documents are packed
  uint64_t hash = 0;                     // the sum of its rows' hashes of (sequence, source, sample, tokens)
  std::exception_ptr error;              // why it could not be read
};

class Prefetch {
 public:
  explicit Prefetch(const BatchOrder&);
  ~Prefetch();
  // Waits for `id`; the reference holds until the `release` of its split. Cheap where `id` follows the batch taken
  // before, a seek otherwise. Throws what reading it threw. One thread takes and releases.
  const ReadBatch& take(const BatchId& id);
  void release(Split);

 private:
  static constexpr int kAhead = 4;  // batches per split
  struct Ring {
    std::array<ReadBatch, kAhead> slots;
    int64_t read = 0, taken = 0;  // counts of batches; those between are ready
    uint64_t seeks = 0;
    BatchId next;  // what is read next, once `wanted` was asked for the first time
    ReadBatch& slot(int64_t count) { return slots[size_t(count % kAhead)]; }
    bool has_room() const { return seeks > 0 && read - taken < kAhead; }
  };
  Ring& ring(Split split) { return rings_[size_t(split)]; }
  void work();
  Ring* choose();
  void read(ReadBatch&, const BatchId&);
  void read_rows(ReadBatch&);
  void accept_row(ReadBatch&, int64_t row);

  const BatchOrder& order_;
  std::unique_ptr<FileEngine> engine_;
  std::vector<std::byte> raw_;  // [rows, T + 1] tokens as they lie in the files; the reading thread's
  std::array<Ring, 2> rings_;
  bool stop_ = false;
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::thread thread_;
};

}  // namespace trainer
