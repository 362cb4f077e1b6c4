// Batches of a test, the same in every layout.
#pragma once
#include "core/base/hash.h"
#include "core/engine/host_feed.h"
#include "core/plan/mesh.h"

namespace trainer::test {

// Tokens are a function of the sequence's number; a few targets are masked, so that ranks have unequal token counts.
class SequenceFeed : public HostFeed {
 public:
  SequenceFeed(const RunSpec& spec, const Mesh& mesh) : spec_(spec), mesh_(mesh) {}

 protected:
  void write(Split, int64_t step, int microbatch, const Batch& batch) override {
    const int64_t T = spec_.data.seq_len,
                  first = step * spec_.train.global_batch.count + (microbatch * mesh_.dp + mesh_.replica) * rows();
    for (int64_t i = 0; i < rows() * T; ++i) {
      const int64_t sequence = first + i / T, t = i % T;
      const auto put = [&](BatchField f, auto value) {
        if (batch[f]) data_as<decltype(value)>(batch[f])[i] = value;
      };
      put(BatchField::tokens, token(sequence, t));
      put(BatchField::targets, token(sequence, t + 1));
      put(BatchField::weights, scramble(uint64_t(sequence * 77 + t)) % 11 == 0 ? 0.0f : 1.0f);
      put(BatchField::positions, int32_t(t));
      put(BatchField::segments, int32_t{0});
      put(BatchField::rows, sequence * T + t);
    }
  }

 private:
  int64_t rows() const { return spec_.train.micro_batch; }
  int32_t token(int64_t sequence, int64_t t) const {
    return int32_t(scramble(uint64_t(sequence * 1000 + t)) % uint64_t(spec_.model.vocab_size));
  }
  const RunSpec& spec_;
  const Mesh& mesh_;
};

}  // namespace trainer::test
