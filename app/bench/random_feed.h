// Batches of random tokens, so that a benchmark needs no data set.
#pragma once
#include "core/engine/host_feed.h"
#include "core/spec/run_spec.h"

namespace trainer {

// Tokens that differ from step to step, one document per sequence.
class RandomFeed final : public HostFeed {
 public:
  explicit RandomFeed(const RunSpec& spec) : vocab_(spec.model.vocab_size), seq_len_(spec.data.seq_len) {}

 private:
  void write(Split, int64_t step, int microbatch, const Batch&) override;
  const int64_t vocab_, seq_len_;
};

}  // namespace trainer
