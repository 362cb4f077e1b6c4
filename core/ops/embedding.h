// Token (and learned position) embedding.
#pragma once
#include "core/ops/kernel.h"
#include "core/ops/vocabulary.h"

namespace trainer {

// out[n] = table[tokens[n] - slice.first] (+ position_table[positions[n]], or of n % seq_len where positions is empty); a token of
// another slice has no row here: zeros stand for it. out [N, C], table [Vp, C], position_table [max_seq_len, C] or empty, tokens
// i32 [N], each within [0, slice.vocab).
struct Embedding {
  static constexpr const char* kName = "embedding";
  Tensor out, tokens, table, position_table, positions;
  int64_t seq_len = 0;
  VocabularySlice slice;
  Cost cost() const { return {position_table ? double(out.elements()) : 0.0, 2.0 * double(out.bytes())}; }
};

// d_table[tokens[n] - slice.first] += d_out[n] for the tokens of this slice, and the same for positions (of all tokens); both f32 or
// both bf16. Each flag says whether that gradient already holds something: where it does not, it is zeroed first. Rows are added in
// f32 and in the order of n, so the result is deterministic; a row of bf16 is rounded once, however often its token comes.
struct EmbeddingGrad {
  static constexpr const char* kName = "embedding_grad";
  Tensor d_table, d_position_table, d_out, tokens, positions;
  int64_t seq_len = 0;
  bool accumulate = false, accumulate_positions = false;
  VocabularySlice slice;
  Cost cost() const { return {double(d_out.elements()), double(d_out.bytes()) + 2.0 * double(d_out.elements()) * double(size_of(d_table.dtype))}; }
};

}  // namespace trainer
