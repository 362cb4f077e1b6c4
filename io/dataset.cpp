#include "io/dataset.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "io/permutation.h"
#include "io/tokenizer.h"

namespace trainer {
namespace {

DataView make_view(std::shared_ptr<const TokenFile> file, int64_t begin, int64_t end, int64_t seq_len,
                   const char* part) {
  check(end - begin >= seq_len + 1, Exit::data,
        "{}: {} of its {} tokens are for {}, but a sample needs data.seq_len + 1 = {}; add text or shorten the samples",
        file->bin().path(), end - begin, file->tokens(), part, seq_len + 1);
  return {std::move(file), begin, end, seq_len};
}

// One tokenizer for all files: the spec's, where it names one.
void check_tokenizers(const DataSpec& spec, const std::vector<const TokenFile*>& files, int64_t vocab_size) {
  const TokenFile* first = nullptr;
  for (const TokenFile* file : files) {
    if (!file->manifest()) continue;
    const TokenManifest& m = *file->manifest();
    check(m.vocab_size <= vocab_size, Exit::data, "{}.json: a vocabulary of {}, but model.vocab_size is {}",
          file->prefix(), m.vocab_size, vocab_size);
    if (!first) {
      first = file;
      if (spec.tokenizer != "none") open_tokenizer(spec.tokenizer, &m);
    }
    const TokenManifest& wanted = *first->manifest();
    check(m.tokenizer_hash == wanted.tokenizer_hash, Exit::data,
          "{}.json: tokens of `{}` with hash {}, but {}.json has `{}` with hash {}; pack all files with the same "
          "tokenizer",
          file->prefix(), m.tokenizer, m.tokenizer_hash, first->prefix(), wanted.tokenizer, wanted.tokenizer_hash);
  }
}

}  // namespace

TrainOrder::TrainOrder(const std::vector<DataView>& views, std::span<const double> weights, int64_t seed)
    : blend_(weights), seed_(uint64_t(seed)) {
  for (const DataView& view : views) samples_.push_back(view.samples());
}

SampleId TrainOrder::at(int64_t sequence) const {
  const auto [source, ordinal] = blend_.at(sequence);
  const int64_t n = samples_[size_t(source)];
  const uint64_t key = scramble(scramble(scramble(seed_) + uint64_t(source)) + uint64_t(ordinal / n));
  return {source, int64_t(Permutation(uint64_t(n), key)(uint64_t(ordinal % n)))};
}

int64_t TrainOrder::epoch(int64_t sequence) const {
  const auto [source, ordinal] = blend_.at(sequence);
  return ordinal / samples_[size_t(source)];
}

ValidOrder::ValidOrder(const std::vector<DataView>& views, std::optional<int64_t> limit) {
  for (const DataView& view : views) begins_.push_back(begins_.back() + view.samples());
  sequences_ = limit ? std::min(*limit, begins_.back()) : begins_.back();
}

SampleId ValidOrder::at(int64_t sequence) const {
  const auto place = int64_t(static_cast<__int128>(sequence) * begins_.back() / sequences_);
  const auto behind = std::upper_bound(begins_.begin(), begins_.end(), place);
  return {int(behind - begins_.begin()) - 1, place - behind[-1]};
}

Dataset open_dataset(const DataSpec& spec, int64_t vocab_size) {
  Dataset set;
  std::vector<const TokenFile*> files;
  const auto open = [&](const Source& source) {
    auto file = std::make_shared<const TokenFile>(source.path);
    check(file->tokens() > 0, Exit::data, "{}: no tokens at all (0 bytes)", file->bin().path());
    files.push_back(file.get());
    return file;
  };
  for (const Source& source : spec.train) {
    const auto file = open(source);
    const auto border = spec.split ? int64_t(*spec.split * double(file->tokens())) : file->tokens();
    set.train.push_back(make_view(file, 0, border, spec.seq_len, "training"));
    set.weights.push_back(source.weight);
    if (spec.split) set.valid.push_back(make_view(file, border, file->tokens(), spec.seq_len, "validation"));
  }
  for (const Source& source : spec.valid) {
    const auto file = open(source);
    set.valid.push_back(make_view(file, 0, file->tokens(), spec.seq_len, "validation"));
  }
  check(!set.train.empty(), Exit::data, "data.train names no source");
  check_tokenizers(spec, files, vocab_size);
  return set;
}

}  // namespace trainer
