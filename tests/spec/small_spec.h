// The smallest sound spec, in sections that tests vary.
#pragma once
#include <string>

namespace trainer {

inline const std::string kSmallSpec =
    "model: {family: llama, num_layers: 2, hidden_size: 64, num_heads: 4, ffn_hidden_size: 128, vocab_size: 300, "
    "max_seq_len: 32}\n"
    "data: {train: [{path: data/a}], split: 0.9}\n"
    "train: {steps: 100, global_batch: 8, micro_batch: 4}\n";

}  // namespace trainer
