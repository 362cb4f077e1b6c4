#include "io/model_json.h"

#include "core/base/error.h"

namespace trainer {
namespace {

template <class T>
void read(const nlohmann::json& json, const char* key, T& value) {
  if (json.contains(key)) json.at(key).get_to(value);
}

void read_rope(const nlohmann::json& json, RopeSpec& rope) {
  read(json, "theta", rope.theta);
  if (!json.contains("scaling") || json.at("scaling").at("kind") == "none") return;
  const auto& scaling = json.at("scaling");
  RopeScaling& s = rope.scaling;
  s.kind = RopeScalingKind::llama3;
  read(scaling, "factor", s.factor);
  read(scaling, "low_freq_factor", s.low_freq_factor);
  read(scaling, "high_freq_factor", s.high_freq_factor);
  read(scaling, "original_max_seq_len", s.original_max_seq_len);
}

}  // namespace

ModelSpec model_from_json(const nlohmann::json& json, const std::string& path) {
  ModelSpec m;
  try {
    const std::string family = json.at("family");
    check(family == "gpt2" || family == "llama", Exit::checkpoint, "{}: model.family: wanted gpt2 or llama, found '{}'",
          path, family);
    m.family = family == "gpt2" ? Family::gpt2 : Family::llama;
    json.at("num_layers").get_to(m.num_layers);
    json.at("hidden_size").get_to(m.hidden_size);
    json.at("num_heads").get_to(m.num_heads);
    json.at("vocab_size").get_to(m.vocab_size);
    json.at("max_seq_len").get_to(m.max_seq_len);
    read(json, "num_kv_heads", m.num_kv_heads);
    read(json, "head_dim", m.head_dim);
    read(json, "ffn_hidden_size", m.ffn_hidden_size);
    read(json, "tie_embeddings", m.tie_embeddings);
    read(json, "norm_eps", m.norm_eps);
    read(json, "qkv_bias", m.qkv_bias);
    read(json, "qk_norm", m.qk_norm);
    read(json, "dropout", m.dropout);
    read(json, "init_std", m.init_std);
    if (json.contains("sliding_window") && json.at("sliding_window").is_number())
      m.sliding_window = json.at("sliding_window").get<int64_t>();
    if (json.contains("rope")) read_rope(json.at("rope"), m.rope);
  } catch (const nlohmann::json::exception& e) { fail(Exit::checkpoint, "{}: model: {}", path, e.what()); }
  return m;
}

}  // namespace trainer
