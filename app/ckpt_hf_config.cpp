#include "app/ckpt_hf_config.h"

#include <algorithm>

#include "core/base/error.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

// Reads keys of one config.json; a null is a key that is not there.
class Config {
 public:
  Config(const nlohmann::json& json, const std::string& path) : json_(json), path_(path) {
    check(json.is_object(), Exit::checkpoint, "{}: wanted a JSON object", path);
  }

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  template <class T>
  T get(const char* key) const {
    check(has(key), Exit::checkpoint, "{}: key '{}' is missing", path_, key);
    return convert<T>(key);
  }
  template <class T>
  T get(const char* key, T otherwise) const {
    return has(key) ? convert<T>(key) : otherwise;
  }
  // The only value of this key that the trainer can express, and what a missing key means.
  template <class T>
  void want(const char* key, const T& value, const T& missing) const {
    const T found = get<T>(key, missing);
    check(found == value, Exit::checkpoint, "{}: {}: the trainer supports {} only, found {}", path_, key,
          nlohmann::json(value).dump(), nlohmann::json(found).dump());
  }
  Config section(const char* key) const { return {json_.at(key), path_}; }
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const {
    fail(Exit::checkpoint, "{}: {}: {}", path_, key, why);
  }

 private:
  template <class T>
  T convert(const char* key) const {
    try {
      return json_.at(key).get<T>();
    } catch (const nlohmann::json::exception& e) { fail(Exit::checkpoint, "{}: {}: {}", path_, key, e.what()); }
  }

  const nlohmann::json& json_;
  const std::string& path_;
};

ModelSpec read_gpt2(const Config& c) {
  ModelSpec m;
  m.family = Family::gpt2;
  m.num_layers = c.get<int64_t>("n_layer");
  m.hidden_size = c.get<int64_t>("n_embd");
  m.num_heads = c.get<int64_t>("n_head");
  m.ffn_hidden_size = c.get<int64_t>("n_inner", 4 * m.hidden_size);
  m.vocab_size = c.get<int64_t>("vocab_size");
  m.max_seq_len = c.get<int64_t>("n_positions");
  m.norm_eps = c.get<double>("layer_norm_epsilon", 1e-5);
  m.tie_embeddings = c.get<bool>("tie_word_embeddings", true);
  m.qkv_bias = true;
  const std::string activation = c.get<std::string>("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    c.refuse("activation_function", "the trainer supports gelu_new only, found " + activation);
  c.want("scale_attn_weights", true, true);
  c.want("scale_attn_by_inverse_layer_idx", false, false);
  c.want("add_cross_attention", false, false);
  m.dropout = c.get<double>("resid_pdrop", 0.1);
  for (const char* key : {"embd_pdrop", "attn_pdrop"}) c.want(key, m.dropout, 0.1);
  return m;
}

RopeSpec read_rope(const Config& c) {
  RopeSpec rope;
  rope.theta = c.get<double>("rope_theta", 10000);
  const char* key = c.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!c.has(key)) return rope;
  const Config s = c.section(key);
  rope.theta = s.get<double>("rope_theta", rope.theta);
  if (s.get<double>("partial_rotary_factor", 1) != 1)
    s.refuse("partial_rotary_factor", "the trainer rotates whole heads");
  const std::string kind = s.get<std::string>("rope_type", s.get<std::string>("type", "default"));
  if (kind == "default") return rope;
  if (kind != "llama3") c.refuse(key, "the trainer supports rope types default and llama3, found " + kind);
  rope.scaling = {RopeScalingKind::llama3, s.get<double>("factor"), s.get<double>("low_freq_factor"),
                  s.get<double>("high_freq_factor"), s.get<int64_t>("original_max_position_embeddings")};
  return rope;
}

// One window for all layers, or none.
std::optional<int64_t> read_window(const Config& c, const std::string& type) {
  bool slides = type == "mistral";
  if (type == "qwen2" || type == "qwen3") slides = c.get<bool>("use_sliding_window", false);
  if (c.has("layer_types")) {
    const auto types = c.get<std::vector<std::string>>("layer_types");
    const auto sliding = std::count(types.begin(), types.end(), "sliding_attention");
    const auto full = std::count(types.begin(), types.end(), "full_attention");
    if (size_t(sliding + full) != types.size()) c.refuse("layer_types", "the trainer knows full and sliding attention");
    if (sliding > 0 && full > 0) c.refuse("layer_types", "the trainer has one sliding window for all layers, or none");
    slides = slides && sliding > 0;
  } else if (slides && type != "mistral" && c.get<int64_t>("max_window_layers", 28) != 0) {
    c.refuse("max_window_layers", "the trainer has one sliding window for all layers, or none");
  }
  if (!slides) return {};
  if (type == "mistral" && !c.has("sliding_window")) return {};
  return c.get<int64_t>("sliding_window", 4096);
}

ModelSpec read_llama(const Config& c, const std::string& type) {
  ModelSpec m;
  m.family = Family::llama;
  m.num_layers = c.get<int64_t>("num_hidden_layers");
  m.hidden_size = c.get<int64_t>("hidden_size");
  m.num_heads = c.get<int64_t>("num_attention_heads");
  m.num_kv_heads = c.get<int64_t>("num_key_value_heads", m.num_heads);
  m.ffn_hidden_size = c.get<int64_t>("intermediate_size");
  m.vocab_size = c.get<int64_t>("vocab_size");
  m.max_seq_len = c.get<int64_t>("max_position_embeddings");
  m.norm_eps = c.get<double>("rms_norm_eps", 1e-6);
  m.tie_embeddings = c.get<bool>("tie_word_embeddings", false);
  m.head_dim = c.get<int64_t>("head_dim", 0);
  m.qkv_bias = type == "qwen2";
  m.qk_norm = type == "qwen3";
  m.sliding_window = read_window(c, type);
  m.rope = read_rope(c);
  c.want<std::string>("hidden_act", "silu", "silu");
  c.want("mlp_bias", false, false);
  c.want("attention_bias", type == "qwen2", type == "qwen2");  // elsewhere it means a bias on o_proj too
  c.want("attention_dropout", 0.0, 0.0);
  c.want("partial_rotary_factor", 1.0, 1.0);
  return m;
}

std::string llama_type(const ModelSpec& m) {
  check(!(m.qkv_bias && m.qk_norm), Exit::checkpoint,
        "no Hugging Face architecture has both qkv_bias and qk_norm: this model cannot be exported");
  if (m.qk_norm) return "qwen3";
  if (m.qkv_bias) return "qwen2";
  return m.sliding_window ? "mistral" : "llama";
}

Json gpt2_config(const ModelSpec& m) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", m.vocab_size},
          {"n_positions", m.max_seq_len},
          {"n_embd", m.hidden_size},
          {"n_layer", m.num_layers},
          {"n_head", m.num_heads},
          {"n_inner", m.ffn_hidden_size},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", m.norm_eps},
          {"resid_pdrop", m.dropout},
          {"embd_pdrop", m.dropout},
          {"attn_pdrop", m.dropout},
          {"tie_word_embeddings", m.tie_embeddings}};
}

Json rope_scaling_of(const RopeScaling& s) {
  if (s.kind == RopeScalingKind::none) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", s.factor},
          {"low_freq_factor", s.low_freq_factor},
          {"high_freq_factor", s.high_freq_factor},
          {"original_max_position_embeddings", s.original_max_seq_len}};
}

Json llama_config(const ModelSpec& m) {
  check(m.dropout == 0, Exit::checkpoint, "no Hugging Face architecture of this family has dropout {}", m.dropout);
  const std::string type = llama_type(m);
  const char* name = type == "llama" ? "Llama" : type == "mistral" ? "Mistral" : type == "qwen2" ? "Qwen2" : "Qwen3";
  Json c{{"architectures", {std::string(name) + "ForCausalLM"}},
         {"model_type", type},
         {"vocab_size", m.vocab_size},
         {"max_position_embeddings", m.max_seq_len},
         {"hidden_size", m.hidden_size},
         {"intermediate_size", m.ffn_hidden_size},
         {"num_hidden_layers", m.num_layers},
         {"num_attention_heads", m.num_heads},
         {"num_key_value_heads", m.num_kv_heads},
         {"head_dim", m.head_dim},
         {"hidden_act", "silu"},
         {"rms_norm_eps", m.norm_eps},
         {"rope_theta", m.rope.theta},
         {"rope_scaling", rope_scaling_of(m.rope.scaling)},
         {"tie_word_embeddings", m.tie_embeddings}};
  if (type == "llama" || type == "qwen3") c["attention_bias"] = false;
  if (type == "mistral") c["sliding_window"] = *m.sliding_window;
  if (type == "qwen2" || type == "qwen3") {
    c["use_sliding_window"] = m.sliding_window.has_value();
    if (m.sliding_window) {
      c["sliding_window"] = *m.sliding_window;
      c["max_window_layers"] = 0;
      c["layer_types"] = std::vector<std::string>(size_t(m.num_layers), "sliding_attention");
    }
  }
  return c;
}

}  // namespace

ModelSpec model_of_hf_config(const nlohmann::json& config, const std::string& path) {
  const Config c(config, path);
  if (c.has("quantization_config")) c.refuse("quantization_config", "quantized weights cannot be imported");
  const std::string type = c.get<std::string>("model_type");
  const bool llama = type == "llama" || type == "qwen2" || type == "qwen3" || type == "mistral";
  if (!llama && type != "gpt2")
    c.refuse("model_type", "the trainer knows gpt2, llama, qwen2, qwen3 and mistral, found " + type);
  ModelSpec m = llama ? read_llama(c, type) : read_gpt2(c);
  m.init_std = c.get<double>("initializer_range", 0.02);
  if (m.num_kv_heads == 0) m.num_kv_heads = m.num_heads;
  if (m.num_heads <= 0) c.refuse("num_attention_heads", "wanted at least one head");
  if (m.head_dim == 0) m.head_dim = m.hidden_size / m.num_heads;
  return m;
}

nlohmann::ordered_json hf_config_of_model(const ModelSpec& m) {
  Json config = m.family == Family::gpt2 ? gpt2_config(m) : llama_config(m);
  config["initializer_range"] = m.init_std;
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  return config;
}

}  // namespace trainer
