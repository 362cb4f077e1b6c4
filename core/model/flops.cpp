#include "core/model/families.h"
#include "core/ops/attention.h"

namespace trainer {
namespace {

// Weights of a layer's matrices.
int64_t layer_matrices(const ModelSpec& m) {
  const int64_t q = m.num_heads * m.head_dim, kv = m.num_kv_heads * m.head_dim;
  return m.hidden_size * (2 * q + 2 * kv + traits_of(m.family).ffn_matrices * m.ffn_hidden_size);
}

int64_t layer_vectors(const ModelSpec& m) {
  const FamilyTraits& f = traits_of(m.family);
  const int64_t q = m.num_heads * m.head_dim, kv = m.num_kv_heads * m.head_dim;
  int64_t n = 2 * m.hidden_size * (f.layer_norm ? 2 : 1);
  if (m.qkv_bias) n += q + 2 * kv;
  if (f.linear_biases) n += m.ffn_hidden_size + 2 * m.hidden_size;
  if (m.qk_norm) n += 2 * m.head_dim;
  return n;
}

int64_t position_table(const ModelSpec& m) {
  return traits_of(m.family).learned_positions ? m.max_seq_len * m.hidden_size : 0;
}

}  // namespace

int64_t parameter_count(const ModelSpec& m) {
  const int64_t table = m.vocab_size * m.hidden_size, norm = m.hidden_size * (traits_of(m.family).layer_norm ? 2 : 1);
  return (m.tie_embeddings ? 1 : 2) * table + position_table(m) +
         m.num_layers * (layer_matrices(m) + layer_vectors(m)) + norm;
}

FlopsPerToken flops_per_token(const ModelSpec& m, int64_t seq_len) {
  const double L = double(m.num_layers), C = double(m.num_heads * m.head_dim), T = double(seq_len);
  const double products = 6 * (L * double(layer_matrices(m)) + double(m.vocab_size * m.hidden_size));
  const double pairs = visible_pairs(seq_len, m.sliding_window.value_or(0)) / T;  // keys that a query sees on average
  return {.simple = 6 * double(parameter_count(m) - position_table(m)) + 12 * L * C * T,
          .exact_full = products + 12 * L * C * T,
          .exact_causal = products + 12 * L * C * pairs};
}

}  // namespace trainer
