// Blocks against PyTorch's stored values (tests/reference): logits, gradients, and three steps of AdamW.
#include <cmath>

#include "tests/model/run_model.h"
#include "tests/support/hugging_face.h"

using namespace trainer;
using namespace trainer::test;

namespace {

using Json = nlohmann::json;

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
RunSpec spec_of(const HuggingFaceReference& reference) {
  const Json c = Json::parse(std::ifstream(reference.folder + "/config.json"));
  RunSpec s = c["model_type"] == "gpt2" ? gpt2_spec(c) : llama_spec(c);
  s.model.vocab_size = c["vocab_size"];
  s.train.micro_batch = HuggingFaceReference::kSequences;
  s.data.seq_len = HuggingFaceReference::kSeqLen;
  s.precision.compute = Precision::fp32;
  return s;
}

Sample sample_of(const HuggingFaceReference& reference, int64_t step) {
  Sample s;
  s.tokens = reference.sequences("tokens", step);
  s.targets = reference.sequences("targets", step);
  s.weights.assign(s.tokens.size(), 1);
  return s;
}

// f(id, piece) for every tensor.
template <class F>
void for_tensors(const RunModel& run, F&& f) {
  for (ParamId id = 0; id < run.model().params.size(); ++id)
    for (const Param::Piece& piece : run.model().params[id].pieces) f(id, piece);
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

Tensors gradients_of(const RunModel& run, double tokens) {
  Tensors gradients;
  for_tensors(run, [&](ParamId id, const Param::Piece& piece) {
    Values& g = gradients[piece.tensor] = piece_values(run.grad(id), piece);
    for (double& x : g) x /= tokens;
  });
  return gradients;
}

Tensors weights_of(RunModel& run) {
  Tensors weights;
  for_tensors(run, [&](ParamId id, const Param::Piece& p) { weights[p.tensor] = piece_values(run.param(id), p); });
  return weights;
}

}  // namespace

TEST_CASE("Hugging Face's models: logits, losses, gradients and three steps of AdamW are PyTorch's") {
  for (const std::string name : {"gpt2", "llama", "qwen2", "qwen3", "mistral"}) {
    INFO(name);
    const HuggingFaceReference reference(name);
    RunModel run(spec_of(reference));
    size_t tensors = 0;
    for_tensors(run, [&](ParamId id, const Param::Piece& piece) {
      set_piece(run.param(id), piece, reference.before.at(piece.tensor));
      ++tensors;
    });
    REQUIRE(tensors == reference.before.size());
    require_close(run.logits(sample_of(reference, 0)), reference.values.at("logits"), {0, 1e-4});

    Optimizer optimizer(reference.record["optimizer"]);
    for (int64_t step = 0; step < HuggingFaceReference::kSteps; ++step) {
      const Outcome outcome = run.train(sample_of(reference, step));
      CHECK(outcome.loss_sum / outcome.tokens == Approx(reference.loss(step)).epsilon(1e-5));
      if (step == 0) reference.check_gradients(gradients_of(run, outcome.tokens));
      optimizer.step(run, outcome.tokens);
      CHECK(optimizer.norm == Approx(reference.gradient_norm(step)).epsilon(1e-4));
    }
    reference.check_weights(weights_of(run));
  }
}
