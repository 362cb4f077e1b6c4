#include "io/feed.h"

#include <algorithm>
#include <cassert>
#include <chrono>

namespace trainer {
namespace {

// One row of each field the model reads; the others are null.
struct Row {
  int32_t *tokens, *targets, *positions, *segments;
  float* weights;
  int64_t* rows;
};

template <class T>
T* row_of(const Batch& batch, BatchField f, int64_t first) {
  return batch[f] ? data_as<T>(batch[f]) + first : nullptr;
}

Row row_at(const Batch& batch, int64_t first) {
  return {row_of<int32_t>(batch, BatchField::tokens, first),    row_of<int32_t>(batch, BatchField::targets, first),
          row_of<int32_t>(batch, BatchField::positions, first), row_of<int32_t>(batch, BatchField::segments, first),
          row_of<float>(batch, BatchField::weights, first),     row_of<int64_t>(batch, BatchField::rows, first)};
}

// `tokens` has T + 1 values; `begins` too, or none where documents do not matter.
void fill_row(const Row& row, std::span<const int32_t> tokens, std::span<const uint8_t> begins) {
  const size_t count = tokens.size() - 1;
  if (row.tokens) std::copy_n(tokens.begin(), count, row.tokens);
  if (row.targets) std::copy_n(tokens.begin() + 1, count, row.targets);
  int32_t position = -1, segment = 0;
  for (size_t t = 0; t < count; ++t) {
    const bool new_document = t > 0 && !begins.empty() && begins[t];
    position = new_document ? 0 : position + 1;
    segment += new_document;
    if (row.positions) row.positions[t] = position;
    if (row.segments) row.segments[t] = segment;
    if (row.weights) row.weights[t] = !begins.empty() && begins[t + 1] ? 0.f : 1.f;
  }
}

void pad_row(const Row& row, int64_t count) {
  if (row.tokens) std::fill_n(row.tokens, count, 0);
  if (row.targets) std::fill_n(row.targets, count, 0);
  if (row.positions) std::fill_n(row.positions, count, 0);
  if (row.segments) std::fill_n(row.segments, count, 0);
  if (row.weights) std::fill_n(row.weights, count, 0.f);
}

}  // namespace

TokenFeed::TokenFeed(Dataset data, const RunSpec& spec, Replica replica)
    : order_(std::move(data), spec, replica), prefetch_(order_) {}

void TokenFeed::write(Split split, int64_t step, int microbatch, const Batch& batch) {
  const BatchId id{split, step, microbatch};
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const ReadBatch& read = prefetch_.take(id);
  waited_nanoseconds_ += std::chrono::nanoseconds(Clock::now() - begin).count();

  const int64_t count = order_.seq_len();
  for (int64_t r = 0; r < order_.rows(); ++r) {
    const Row row = row_at(batch, r * count);
    const auto first = size_t(r * (count + 1)), values = size_t(count + 1);
    if (r < read.filled_rows)
      fill_row(row, std::span(read.tokens).subspan(first, values),
               order_.packs_documents() ? std::span(read.document_begins).subspan(first, values)
                                        : std::span<const uint8_t>());
    else pad_row(row, count);
    for (int64_t t = 0; row.rows && t < count; ++t) row.rows[t] = (read.first_sequence + r) * count + t;
  }
  if (id.split == Split::train) remember(read);
  prefetch_.release(id.split);
}

void TokenFeed::remember(const ReadBatch& read) {
  const std::scoped_lock lock(mutex_);
  StepHash& entry = hashes_[size_t(read.id.step) % kRemembered];
  if (entry.step != read.id.step)
    entry = {.step = read.id.step, .holds = std::vector<bool>(size_t(microbatches(read.id.step)))};
  if (entry.holds[size_t(read.id.microbatch)]) return;
  entry.holds[size_t(read.id.microbatch)] = true;
  entry.hash += read.hash;
}

NoteCall TokenFeed::hash_note() const {
  const auto read = [](const void* feed, int64_t step, Outcome& outcome) {
    add_data_hash(outcome, static_cast<const TokenFeed*>(feed)->data_hash(step));
  };
  return {.read = read, .source = this};
}

double TokenFeed::waited_seconds() { return 1e-9 * double(waited_nanoseconds_.exchange(0)); }

uint64_t TokenFeed::data_hash(int64_t step) const {
  const std::scoped_lock lock(mutex_);
  const StepHash& entry = hashes_[size_t(step) % kRemembered];
  assert(entry.step == step && std::count(entry.holds.begin(), entry.holds.end(), true) == microbatches(step));
  return entry.hash;
}

std::vector<int64_t> TokenFeed::sample_ids(int64_t step) const {
  std::vector<int64_t> ids;
  for (int m = 0; m < microbatches(step); ++m) {
    const int64_t first = order_.first_sequence({Split::train, step, m});
    for (int64_t row = 0; row < order_.rows(); ++row)
      ids.push_back(order_.number(Split::train, order_.sample(Split::train, first + row)));
  }
  return ids;
}

}  // namespace trainer
