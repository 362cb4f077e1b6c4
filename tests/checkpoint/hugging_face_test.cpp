// Models of the hub in, and out again: every value bit for bit, and what cannot be expressed refused by name.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "app/ckpt_hf.h"
#include "app/ckpt_hf_config.h"
#include "core/base/hash.h"
#include "io/model_json.h"
#include "io/restore.h"
#include "io/safetensors_set.h"
#include "tests/checkpoint/state.h"

using namespace trainer;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;
};

Json llama_config(const std::string& type) {
  return {{"model_type", type},
          {"vocab_size", 11},
          {"hidden_size", 8},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"intermediate_size", 6},
          {"head_dim", 6},
          {"max_position_embeddings", 32},
          {"rms_norm_eps", 1e-6},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false},
          {"rope_theta", 500000.0}};
}

std::vector<HfTensor> llama_tensors(const std::string& type) {
  const std::string l = "model.layers.0.", a = l + "self_attn.";
  std::vector<HfTensor> all{{"model.embed_tokens.weight", {11, 8}},
                            {"lm_head.weight", {11, 8}},
                            {"model.norm.weight", {8}},
                            {l + "input_layernorm.weight", {8}},
                            {l + "post_attention_layernorm.weight", {8}},
                            {a + "q_proj.weight", {12, 8}},
                            {a + "k_proj.weight", {6, 8}},
                            {a + "v_proj.weight", {6, 8}},
                            {a + "o_proj.weight", {8, 12}},
                            {l + "mlp.gate_proj.weight", {6, 8}},
                            {l + "mlp.up_proj.weight", {6, 8}},
                            {l + "mlp.down_proj.weight", {8, 6}}};
  if (type == "qwen3") all.insert(all.end(), {{a + "q_norm.weight", {6}}, {a + "k_norm.weight", {6}}});
  if (type == "qwen2")
    all.insert(all.end(), {{a + "q_proj.bias", {12}}, {a + "k_proj.bias", {6}}, {a + "v_proj.bias", {6}}});
  return all;
}

std::vector<HfTensor> gpt2_tensors(const std::string& prefix) {
  const std::string h = prefix + "h.0.";
  return {{prefix + "wte.weight", {11, 4}},
          {prefix + "wpe.weight", {16, 4}},
          {h + "ln_1.weight", {4}},
          {h + "ln_1.bias", {4}},
          {h + "attn.c_attn.weight", {4, 12}},
          {h + "attn.c_attn.bias", {12}},
          {h + "attn.c_proj.weight", {4, 4}},
          {h + "attn.c_proj.bias", {4}},
          {h + "ln_2.weight", {4}},
          {h + "ln_2.bias", {4}},
          {h + "mlp.c_fc.weight", {4, 16}},
          {h + "mlp.c_fc.bias", {16}},
          {h + "mlp.c_proj.weight", {16, 4}},
          {h + "mlp.c_proj.bias", {4}},
          {prefix + "ln_f.weight", {4}},
          {prefix + "ln_f.bias", {4}},
          {h + "attn.bias", {1, 1, 16, 16}}};
}

Json gpt2_config() {
  return {{"model_type", "gpt2"}, {"vocab_size", 11},   {"n_positions", 16}, {"n_embd", 4},      {"n_layer", 1},
          {"n_head", 2},          {"resid_pdrop", 0.0}, {"embd_pdrop", 0.0}, {"attn_pdrop", 0.0}};
}

// Finite values that depend on the tensor's name without its prefix.
std::string values_of(const SafetensorsEntry& e) {
  std::string bytes(e.bytes(), '\0');
  const std::string name = e.name.starts_with("transformer.") ? e.name.substr(12) : e.name;
  uint64_t x = hash_text(name);
  for (char& c : bytes) c = char((x = scramble(x)) & 0x3f);
  return bytes;
}

void write_model(const std::string& path, const Json& config, const std::vector<HfTensor>& tensors,
                 const char* type = "F32") {
  fs::create_directories(path);
  std::ofstream(path + "/config.json") << config.dump();
  std::vector<SafetensorsEntry> entries;
  for (const HfTensor& t : tensors) entries.push_back({t.name, find_stored_type(type), t.shape, 0, 0});
  std::ofstream out(path + "/model.safetensors", std::ios::binary);
  out << lay_out_safetensors(entries, {});
  for (const auto& e : entries) out << values_of(e);
}

std::string stored_values(const SafetensorsSet::Place& place) {
  std::string bytes(place.entry->bytes(), '\0');
  read_exactly(place.part->file, std::as_writable_bytes(std::span(bytes)), place.entry->begin, Exit::checkpoint);
  return bytes;
}

void check_round_trip(const Json& config, const std::vector<HfTensor>& tensors, uint64_t part_bytes) {
  const TemporaryDirectory directory;
  const std::string source = directory.path + "/hf", out = directory.path + "/out";
  write_model(source, config, tensors);
  const std::string step = import_hugging_face(source, directory.path + "/ours");
  CHECK(verify_checkpoint(step).empty());
  export_hugging_face(step, out, part_bytes);
  const SafetensorsSet exported = open_safetensors_set(out);
  CHECK(exported.parts.size() == (part_bytes < 1000 ? exported.parts.size() : 1));
  size_t masks = 0;
  for (const HfTensor& t : tensors) {
    if (t.name.ends_with(".attn.bias")) {
      ++masks;
      continue;
    }
    const bool bare = config["model_type"] == "gpt2" && !t.name.starts_with("transformer.");
    const auto place = exported.tensors.find(bare ? "transformer." + t.name : t.name);
    REQUIRE(place != exported.tensors.end());
    CHECK(place->second.entry->shape == t.shape);
    CHECK(stored_values(place->second) == values_of(*place->second.entry));
  }
  CHECK(exported.tensors.size() == tensors.size() - masks);
  // What was exported describes the same model.
  std::ifstream in(out + "/config.json");
  const Json back = Json::parse(in);
  CHECK(back["model_type"] == config["model_type"]);
  CHECK(hf_config_of_model(model_of_hf_config(back, "back")) ==
        hf_config_of_model(model_of_hf_config(config, "there")));
}

std::string refusal_of(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  try {
    model_of_hf_config(config, "config.json");
    return "";
  } catch (const Error& e) {
    CHECK(e.code() == Exit::checkpoint);
    return e.what();
  }
}

}  // namespace

TEST_CASE("models come in and go out bit for bit") {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    INFO(type);
    check_round_trip(llama_config(type), llama_tensors(type), 5'000'000'000);
  }
  Json mistral = llama_config("mistral");
  mistral["sliding_window"] = 16;
  check_round_trip(mistral, llama_tensors("mistral"), 500);  // several parts and an index
  check_round_trip(gpt2_config(), gpt2_tensors("transformer."), 5'000'000'000);
  check_round_trip(gpt2_config(), gpt2_tensors(""), 5'000'000'000);
}

TEST_CASE("half precision comes in exactly") {
  for (const char* type : {"BF16", "F16"}) {
    const TemporaryDirectory directory;
    write_model(directory.path + "/hf", llama_config("llama"), llama_tensors("llama"), type);
    const Checkpoint c = open_checkpoint(import_hugging_face(directory.path + "/hf", directory.path + "/ours"));
    const SafetensorsSet source = open_safetensors_set(directory.path + "/hf");
    const std::string halves = stored_values(source.tensors.at("model.norm.weight"));
    const std::vector<std::byte> bytes = read_tensor(c, "model.norm.weight");
    for (size_t i = 0; i < 8; ++i) {
      uint16_t half = 0;
      float found = 0;
      std::memcpy(&half, halves.data() + 2 * i, 2);
      std::memcpy(&found, bytes.data() + 4 * i, 4);
      const int exponent_bits = type == std::string("F16") ? 5 : 8, fraction_bits = 15 - exponent_bits;
      const int exponent = half >> fraction_bits & ((1 << exponent_bits) - 1),
                fraction = half & ((1 << fraction_bits) - 1);
      const int bias = (1 << (exponent_bits - 1)) - 1;
      const double wanted = exponent == 0
                                ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
      CHECK(double(found) == wanted);
    }
  }
}

TEST_CASE("configurations map to the model section") {
  Json c = llama_config("llama");
  c["rope_scaling"] = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  const ModelSpec m = model_of_hf_config(c, "c");
  CHECK(m.rope.theta == 500000);
  CHECK(m.rope.scaling.kind == RopeScalingKind::llama3);
  CHECK(m.rope.scaling.original_max_seq_len == 8192);
  CHECK(m.head_dim == 6);
  CHECK(m.num_kv_heads == 1);
  Json v5 = llama_config("qwen3");
  v5.erase("rope_theta");
  v5["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  v5["sliding_window"] = 4096;
  CHECK(model_of_hf_config(v5, "c").rope.theta == 1e6);
  CHECK(model_of_hf_config(v5, "c").qk_norm);
  CHECK_FALSE(model_of_hf_config(v5, "c").sliding_window);
  CHECK_FALSE(model_of_hf_config(llama_config("mistral"), "c").sliding_window);
}

TEST_CASE("what the trainer cannot express is refused by its key") {
  const struct {
    const char *type, *key;
    Json value;
  } cases[] = {{"llama", "mlp_bias", true},
               {"llama", "attention_bias", true},
               {"llama", "hidden_act", "gelu"},
               {"llama", "model_type", "bert"},
               {"llama", "quantization_config", Json::object()},
               {"llama", "rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}},
               {"llama", "num_hidden_layers", nullptr},
               {"llama", "num_hidden_layers", "many"},
               {"qwen3", "layer_types", {"chunked_attention"}},
               {"qwen2", "use_sliding_window", true}};
  for (const auto& c : cases) {
    const std::string key = c.key == std::string("use_sliding_window") ? "max_window_layers" : c.key;
    CHECK_THAT(refusal_of(llama_config(c.type), c.key, c.value), Catch::Contains(key));
  }
  CHECK_THAT(refusal_of(gpt2_config(), "activation_function", "relu"), Catch::Contains("activation_function"));
  CHECK_THAT(refusal_of(gpt2_config(), "attn_pdrop", 0.5), Catch::Contains("attn_pdrop"));
}

TEST_CASE("missing, misshapen and foreign tensors are refused by name") {
  const auto refused = [](auto change) -> std::string {
    const TemporaryDirectory directory;
    auto tensors = llama_tensors("llama");
    change(tensors);
    write_model(directory.path + "/hf", llama_config("llama"), tensors);
    try {
      import_hugging_face(directory.path + "/hf", directory.path + "/ours");
      return "";
    } catch (const Error& e) { return e.what(); }
  };
  CHECK(refused([](auto&) {}) == "");
  CHECK_THAT(refused([](auto& t) { t.erase(t.begin() + 5); }), Catch::Contains("q_proj.weight' is missing"));
  CHECK_THAT(refused([](auto& t) { t[2].shape = {9}; }),
             Catch::Contains("model.norm.weight") && Catch::Contains("[9]"));
  CHECK_THAT(refused([](auto& t) { t.push_back({"adapter.weight", {2}}); }), Catch::Contains("adapter.weight"));
}
