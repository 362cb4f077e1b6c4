// Blocks against PyTorch's stored values (tests/reference): logits, gradients, and three steps of AdamW.
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "tests/model/run_model.h"
#include "tests/support/compare.h"

using namespace trainer;
using namespace trainer::test;

namespace {

using Json = nlohmann::json;
using Tensors = std::map<std::string, Values>;

std::string folder_of(const std::string& name) { return std::string(TESTS_DIR) + "/data/hf/" + name; }
Json read_json(const std::string& path) { return Json::parse(std::ifstream(path)); }

Tensors read_tensors(const std::string& folder, const std::string& file) {
  const File f = open_beneath(open_directory(folder, Exit::checkpoint), file, Exit::checkpoint);
  const SafetensorsHeader header = read_safetensors_header(f);
  Tensors tensors;
  for (const SafetensorsEntry& e : header.tensors) {
    const DType dtype = e.type->name == "F32" ? DType::f32 : DType::i32;
    test::Buffer buffer(dtype, {int64_t(e.bytes() / 4)});
    read_exactly(f, {buffer.tensor().data, size_t(e.bytes())}, e.begin, Exit::checkpoint);
    tensors[e.name] = buffer.values();
  }
  return tensors;
}

RunSpec gpt2_spec(const Json& c) {
  RunSpec s;
  ModelSpec& m = s.model;
  m.family = Family::gpt2;
  m.num_layers = c["n_layer"];
  m.hidden_size = c["n_embd"];
  m.num_heads = m.num_kv_heads = c["n_head"];
  m.head_dim = m.hidden_size / m.num_heads;
  m.ffn_hidden_size = 4 * m.hidden_size;
  m.max_seq_len = c["n_positions"];
  m.norm_eps = c["layer_norm_epsilon"];
  m.tie_embeddings = m.qkv_bias = true;
  return s;
}
RunSpec llama_spec(const Json& c) {
  RunSpec s;
  ModelSpec& m = s.model;
  m.num_layers = c["num_hidden_layers"];
  m.hidden_size = c["hidden_size"];
  m.num_heads = c["num_attention_heads"];
  m.num_kv_heads = c["num_key_value_heads"];
  m.head_dim =
      c.contains("head_dim") && c["head_dim"].is_number() ? c["head_dim"].get<int64_t>() : m.hidden_size / m.num_heads;
  m.ffn_hidden_size = c["intermediate_size"];
  m.max_seq_len = c["max_position_embeddings"];
  m.norm_eps = c["rms_norm_eps"];
  m.tie_embeddings = c["tie_word_embeddings"];
  m.qkv_bias = c["model_type"] == "qwen2";
  m.qk_norm = c["model_type"] == "qwen3";
  if (c["model_type"] == "mistral") m.sliding_window = c["sliding_window"].get<int64_t>();
  const Json& rope = c["rope_parameters"];
  m.rope.theta = rope["rope_theta"];
  if (rope["rope_type"] == "llama3")
    m.rope.scaling = {RopeScalingKind::llama3, rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"],
                      rope["original_max_position_embeddings"]};
  return s;
}
RunSpec spec_of(const std::string& name) {
  const Json c = read_json(folder_of(name) + "/config.json");
  RunSpec s = c["model_type"] == "gpt2" ? gpt2_spec(c) : llama_spec(c);
  s.model.vocab_size = c["vocab_size"];
  s.train.micro_batch = 2;
  s.data.seq_len = 24;
  s.precision.compute = Precision::fp32;
  return s;
}

class Reference {
 public:
  explicit Reference(const std::string& name)
      : spec(spec_of(name)),
        record(read_json(folder_of(name) + "/reference.json")),
        before(read_tensors(folder_of(name), "model.safetensors")),
        values(read_tensors(folder_of(name), "reference.safetensors")) {}

  Sample sample(size_t step) const {
    Sample s;
    const size_t N = 48;
    for (size_t i = step * N; i < (step + 1) * N; ++i) {
      s.tokens.push_back(int32_t(values.at("tokens")[i]));
      s.targets.push_back(int32_t(values.at("targets")[i]));
      s.weights.push_back(1);
    }
    return s;
  }
  // Elements of a tensor whose gradient is zero in exact arithmetic.
  bool true_zero(const std::string& tensor, size_t i) const {
    for (const Json& z : record["true_zero_gradients"])
      if (z["tensor"] == tensor && i >= z["begin"] && i < z["end"]) return true;
    return false;
  }

  RunSpec spec;
  Json record;
  Tensors before, values;
};

// f(id, piece) for every tensor.
template <class F>
void for_tensors(const RunModel& run, F&& f) {
  for (ParamId id = 0; id < run.model().params.size(); ++id)
    for (const Param::Piece& piece : run.model().params[id].pieces) f(id, piece);
}

// |actual - wanted| <= 1e-4 |wanted| in norm, over the elements that count.
template <class Counts>
void require_near(const Values& actual, const Values& wanted, Counts&& counts) {
  REQUIRE(actual.size() == wanted.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!counts(i)) continue;
    difference += std::pow(actual[i] - wanted[i], 2);
    size += std::pow(wanted[i], 2);
  }
  CHECK(std::sqrt(difference) <= 1e-4 * std::sqrt(size));
}

// AdamW over whole parameters, in double but for the stored weights.
class Optimizer {
 public:
  explicit Optimizer(const Json& o)
      : lr_(o["lr"]),
        beta1_(o["betas"][0]),
        beta2_(o["betas"][1]),
        eps_(o["eps"]),
        decay_(o["weight_decay"]),
        clip_(o["clip"]) {}

  void step(RunModel& run, double tokens) {
    const size_t count = run.model().params.size();
    m_.resize(count);
    v_.resize(count);
    ++step_;
    double squares = 0;
    for (ParamId id = 0; id < count; ++id)
      for (double g : run.grad(id).values()) squares += g * g;
    norm = std::sqrt(squares) / tokens;
    const double factor = std::min(1.0, clip_ / norm) / tokens;
    for (ParamId id = 0; id < count; ++id) update(run, id, factor);
  }
  double norm = 0;

 private:
  void update(RunModel& run, ParamId id, double factor) {
    Values w = run.param(id).values(), g = run.grad(id).values(), &m = m_[id], &v = v_[id];
    m.resize(w.size());
    v.resize(w.size());
    const double decay = run.model().params[id].decays ? decay_ : 0;
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = beta1_ * m[i] + (1 - beta1_) * g[i] * factor;
      v[i] = beta2_ * v[i] + (1 - beta2_) * g[i] * factor * g[i] * factor;
      const double m_hat = m[i] / (1 - std::pow(beta1_, step_)), v_hat = v[i] / (1 - std::pow(beta2_, step_));
      w[i] -= lr_ * (decay * w[i] + m_hat / (std::sqrt(v_hat) + eps_));
    }
    run.param(id).set(w);
  }
  double lr_, beta1_, beta2_, eps_, decay_, clip_;
  int step_ = 0;
  std::vector<Values> m_, v_;
};

void compare_gradients(const RunModel& run, const Reference& reference, double tokens) {
  for_tensors(run, [&](ParamId id, const Param::Piece& piece) {
    Values g = piece_values(run.grad(id), piece);
    for (double& x : g) x /= tokens;
    INFO("gradient of " << piece.tensor);
    require_near(g, reference.values.at("gradient." + piece.tensor), [](size_t) { return true; });
  });
}

void compare_weights(RunModel& run, const Reference& reference, double lr) {
  for_tensors(run, [&](ParamId id, const Param::Piece& piece) {
    const Values w = piece_values(run.param(id), piece), &wanted = reference.values.at("weight." + piece.tensor);
    INFO("weight of " << piece.tensor);
    require_near(w, wanted, [&](size_t i) { return !reference.true_zero(piece.tensor, i); });
    for (size_t i = 0; i < w.size(); ++i)  // Adam's steps there are noise over noise, at most lr each
      if (reference.true_zero(piece.tensor, i)) CHECK(std::abs(w[i] - wanted[i]) < 7 * lr);
  });
}

}  // namespace

TEST_CASE("Hugging Face's models: logits, losses, gradients and three steps of AdamW are PyTorch's") {
  for (const std::string name : {"gpt2", "llama", "qwen2", "qwen3", "mistral"}) {
    INFO(name);
    const Reference reference(name);
    RunModel run(reference.spec, 0);
    size_t tensors = 0;
    for_tensors(run, [&](ParamId id, const Param::Piece& piece) {
      set_piece(run.param(id), piece, reference.before.at(piece.tensor));
      ++tensors;
    });
    REQUIRE(tensors == reference.before.size());
    require_close(run.logits(reference.sample(0)), reference.values.at("logits"), {0, 1e-4});

    Optimizer optimizer(reference.record["optimizer"]);
    for (size_t step = 0; step < 3; ++step) {
      const Outcome outcome = run.train(reference.sample(step));
      CHECK(outcome.loss_sum / outcome.tokens == Approx(reference.record["losses"][step].get<double>()).epsilon(1e-5));
      if (step == 0) compare_gradients(run, reference, outcome.tokens);
      optimizer.step(run, outcome.tokens);
      CHECK(optimizer.norm == Approx(reference.record["gradient_norms"][step].get<double>()).epsilon(1e-4));
    }
    compare_weights(run, reference, reference.record["optimizer"]["lr"]);
  }
}
