#include "io/prefetch.h"

#include <algorithm>
#include <cstring>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/hash.h"

namespace trainer {
namespace {

constexpr int kTransfers = 16;  // in flight at most

}  // namespace

Prefetch::Prefetch(const BatchOrder& order)
    : order_(order), engine_(make_file_engine(int(std::min<int64_t>(order.rows(), kTransfers)))) {
  const auto tokens = size_t(order.rows() * (order.seq_len() + 1));
  raw_.resize(tokens * sizeof(int32_t));
  for (Ring& ring : rings_) {
    for (ReadBatch& slot : ring.slots) {
      slot.tokens.resize(tokens);
      if (order.packs_documents()) slot.document_begins.resize(tokens);
    }
  }
  thread_ = std::thread([this] { work(); });
}

Prefetch::~Prefetch() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  room_.notify_one();
  thread_.join();
}

const ReadBatch& Prefetch::take(const BatchId& id) {
  std::unique_lock lock(mutex_);
  Ring& r = ring(id.split);
  const BatchId coming = r.read > r.taken ? r.slot(r.taken).id : r.next;
  if (r.seeks == 0 || coming != id) {
    r.read = r.taken;  // what was read ahead is not wanted
    r.next = id;
    ++r.seeks;
    room_.notify_one();
  }
  ready_.wait(lock, [&] { return r.read > r.taken; });
  const ReadBatch& batch = r.slot(r.taken);
  if (batch.error) std::rethrow_exception(batch.error);
  return batch;
}

void Prefetch::release(Split split) {
  {
    const std::scoped_lock lock(mutex_);
    ++ring(split).taken;
  }
  room_.notify_one();
}

// The ring with the fewest batches ready, of those that can take one.
Prefetch::Ring* Prefetch::choose() {
  Ring* best = nullptr;
  for (Ring& r : rings_)
    if (r.has_room() && (!best || r.read - r.taken < best->read - best->taken)) best = &r;
  return best;
}

void Prefetch::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    Ring* ring = nullptr;
    room_.wait(lock, [&] { return stop_ || (ring = choose()) != nullptr; });
    if (stop_) return;
    ReadBatch& slot = ring->slot(ring->read);
    const BatchId id = ring->next;
    const uint64_t seeks = ring->seeks;
    lock.unlock();
    read(slot, id);
    lock.lock();
    if (seeks != ring->seeks) continue;  // another place was asked for meanwhile
    ring->next = order_.next(id);
    ++ring->read;
    ready_.notify_one();
  }
}

void Prefetch::read(ReadBatch& batch, const BatchId& id) {
  batch.id = id;
  batch.error = nullptr;
  batch.hash = 0;
  try {
    batch.first_sequence = order_.first_sequence(id);
    batch.filled_rows = order_.filled_rows(id);
    read_rows(batch);
    for (int64_t row = 0; row < batch.filled_rows; ++row) accept_row(batch, row);
  } catch (...) { batch.error = std::current_exception(); }
}

void Prefetch::read_rows(ReadBatch& batch) {
  const size_t tokens = size_t(order_.seq_len() + 1);
  const auto transfer_of = [&](int64_t row) {
    const SampleId id = order_.sample(batch.id.split, batch.first_sequence + row);
    const DataView& view = order_.view(batch.id.split, id.source);
    return Transfer{.fd = view.file->bin().fd(),
                    .data = raw_.data() + size_t(row) * tokens * sizeof(int32_t),
                    .bytes = tokens * size_of(view.file->type()),
                    .offset = view.file->offset_of(view.first_token(id.sample))};
  };
  std::string problem;  // the first one; thrown when no transfer is in flight any more
  int64_t submitted = 0;
  for (int64_t done = 0; done < batch.filled_rows; ++done) {
    for (; submitted < batch.filled_rows && submitted - done < engine_->depth(); ++submitted)
      engine_->submit(transfer_of(submitted), uint64_t(submitted));
    const Completion c = engine_->wait();
    const Transfer t = transfer_of(int64_t(c.tag));
    if ((c.error == 0 && c.bytes == t.bytes) || !problem.empty()) continue;
    const SampleId id = order_.sample(batch.id.split, batch.first_sequence + int64_t(c.tag));
    const DataFile& file = order_.view(batch.id.split, id.source).file->bin();
    problem = c.error ? fmt::format("{} at byte {}: cannot be read: {}", file.path(), t.offset, std::strerror(c.error))
                      : fmt::format("{} at byte {}: the file ends, it had {} bytes when the run began", file.path(),
                                    t.offset + c.bytes, file.size());
  }
  check(problem.empty(), Exit::data, "{}", problem);
}

void Prefetch::accept_row(ReadBatch& batch, int64_t row) {
  const int64_t count = order_.seq_len() + 1, sequence = batch.first_sequence + row;
  const SampleId id = order_.sample(batch.id.split, sequence);
  const DataView& view = order_.view(batch.id.split, id.source);
  const int64_t first = view.first_token(id.sample);
  const auto tokens = std::span(batch.tokens).subspan(size_t(row * count), size_t(count));
  decode_tokens(view.file->type(), raw_.data() + size_t(row * count) * sizeof(int32_t), tokens);
  view.file->check_ids(first, tokens, order_.vocab_size());

  uint64_t hash = scramble(uint64_t(sequence));
  for (const uint64_t x : {uint64_t(id.source), uint64_t(id.sample), uint64_t(crc32c(0, std::as_bytes(tokens)))})
    hash = scramble(hash + x);
  batch.hash += hash;

  if (!order_.packs_documents()) return;
  const auto flags = std::span(batch.document_begins).subspan(size_t(row * count), size_t(count));
  std::fill(flags.begin(), flags.end(), uint8_t{0});
  const auto begins = view.file->document_begins();
  for (auto it = std::lower_bound(begins.begin(), begins.end(), first); it != begins.end() && *it < first + count; ++it)
    flags[size_t(*it - first)] = 1;
}

}  // namespace trainer
