#include "app/bench/random_feed.h"

#include "core/base/hash.h"

namespace trainer {

void RandomFeed::write(Split, int64_t step, int microbatch, const Batch& batch) {
  const auto key = uint64_t(step * 4096 + microbatch);
  const auto each = [&](BatchField f, auto value) {
    for (int64_t i = 0, n = batch[f] ? batch[f].elements() : 0; i < n; ++i) value(batch[f], i);
  };
  const auto token = [&](const Tensor& t, int64_t i) {
    data_as<int32_t>(t)[i] = int32_t(scramble((key << 32) + uint64_t(i)) % uint64_t(vocab_));
  };
  each(BatchField::tokens, token);
  each(BatchField::targets, token);
  each(BatchField::weights, [](const Tensor& t, int64_t i) { data_as<float>(t)[i] = 1; });
  each(BatchField::positions, [&](const Tensor& t, int64_t i) { data_as<int32_t>(t)[i] = int32_t(i % seq_len_); });
  each(BatchField::segments, [](const Tensor& t, int64_t i) { data_as<int32_t>(t)[i] = 0; });
  each(BatchField::rows, [](const Tensor& t, int64_t i) { data_as<int64_t>(t)[i] = i; });
}

}  // namespace trainer
