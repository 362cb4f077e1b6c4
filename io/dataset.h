// Which samples exist and in which order they come. A sample of T tokens reads T + 1 of them: the last one is a target
// only.
#pragma once
#include <memory>
#include <vector>

#include "core/spec/run_spec.h"
#include "io/blend.h"
#include "io/tokens.h"

namespace trainer {

// Tokens [begin, end) of a file: sample i is its tokens [begin + i*T, begin + i*T + T]. What does not fill a sample at
// the end is unused.
struct DataView {
  std::shared_ptr<const TokenFile> file;
  int64_t begin = 0, end = 0, seq_len = 0;
  int64_t samples() const { return (end - begin - 1) / seq_len; }
  int64_t first_token(int64_t sample) const { return begin + sample * seq_len; }
};

struct SampleId {
  int source = 0;      // index into the views
  int64_t sample = 0;  // of that view
  bool operator==(const SampleId&) const = default;
};

// The order of training: a function of the seed and the global sequence number alone. Sources are interleaved by
// weight; each goes through all of its samples, in an order of its own, before any comes again.
class TrainOrder {
 public:
  TrainOrder(const std::vector<DataView>& views, std::span<const double> weights, int64_t seed);
  SampleId at(int64_t sequence) const;
  int64_t epoch(int64_t sequence) const;  // of the source that the sequence comes from
  const Blend& blend() const { return blend_; }

 private:
  std::vector<int64_t> samples_;  // per source
  Blend blend_;
  uint64_t seed_;
};

// The order of evaluation: the sources one behind the other, without weights; with a limit, that many of their samples
// at even distances.
class ValidOrder {
 public:
  ValidOrder(const std::vector<DataView>& views, std::optional<int64_t> limit);
  int64_t sequences() const { return sequences_; }
  SampleId at(int64_t sequence) const;  // REQUIRES: sequence < sequences()

 private:
  std::vector<int64_t> begins_{0};  // in the concatenation; one more than sources
  int64_t sequences_ = 0;
};

struct Dataset {
  std::vector<DataView> train, valid;  // valid is empty where the spec names none
  std::vector<double> weights;         // of train
};

// Opens and checks all files. Error(data) with the sizes where a source is shorter than one sample, where the files'
// tokenizers differ from the spec's or from one another, and where a vocabulary is larger than the model's.
Dataset open_dataset(const DataSpec&, int64_t vocab_size);

}  // namespace trainer
