// Tiny specs of every variant of the two families.
#pragma once
#include <string>
#include <vector>

#include "core/spec/run_spec.h"

namespace trainer::test {

struct NamedSpec {
  std::string name;
  RunSpec spec;
};

// f32, two layers, two sequences of eleven tokens, a vocabulary that needs padding.
inline RunSpec tiny_spec(Family family) {
  RunSpec s;
  ModelSpec& m = s.model;
  m.family = family;
  m.num_layers = 2;
  m.hidden_size = 12;
  m.num_heads = m.num_kv_heads = 3;
  m.head_dim = 4;
  m.ffn_hidden_size = 20;
  m.vocab_size = 70;
  m.max_seq_len = 16;
  m.tie_embeddings = m.qkv_bias = family == Family::gpt2;
  m.init_std = 0.3;
  s.data.seq_len = 11;
  s.train.micro_batch = 2;
  s.precision.compute = Precision::fp32;
  return s;
}

inline std::vector<NamedSpec> all_variants() {
  std::vector<NamedSpec> list;
  const auto add = [&](std::string name, Family family, auto&& change) {
    list.push_back({std::move(name), tiny_spec(family)});
    change(list.back().spec);
  };
  const auto grouped = [](RunSpec& s) {
    s.model.num_heads = 4;
    s.model.num_kv_heads = 2;
    s.model.head_dim = 6;
  };
  add("gpt2", Family::gpt2, [](RunSpec&) {});
  add("gpt2 with documents and dropout", Family::gpt2, [](RunSpec& s) {
    s.data.packing = Packing::document;
    s.model.dropout = 0.2;
  });
  add("llama", Family::llama, [](RunSpec&) {});
  add("llama, grouped, tied, with biases", Family::llama, [&](RunSpec& s) {
    grouped(s);
    s.model.tie_embeddings = s.model.qkv_bias = true;
  });
  add("llama with QK-norm and documents", Family::llama, [&](RunSpec& s) {
    grouped(s);
    s.model.qk_norm = true;
    s.data.packing = Packing::document;
  });
  add("llama with a window, dropout and llama3 frequencies", Family::llama, [&](RunSpec& s) {
    grouped(s);
    s.model.sliding_window = 4;
    s.model.dropout = 0.1;
    s.model.rope.scaling = {RopeScalingKind::llama3, 8, 1, 4, 16};
  });
  return list;
}

}  // namespace trainer::test
