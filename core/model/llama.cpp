// Llama and its relatives (Touvron et al. 2023): RMSNorm, rotary positions, grouped heads, SwiGLU. Llama 1 to 3,
// Qwen2.5, Qwen3 dense and Mistral are specs of it.
#include <fmt/format.h>

#include "core/model/blocks/attention.h"
#include "core/model/blocks/embedding.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/blocks/head.h"
#include "core/model/families.h"

namespace trainer {
namespace {

RopeFrequencies frequencies_of(const RopeSpec& rope) {
  const RopeScaling& s = rope.scaling;
  if (s.kind == RopeScalingKind::none) return {.theta = rope.theta};
  return {.theta = rope.theta,
          .llama3 = true,
          .factor = s.factor,
          .low_freq_factor = s.low_freq_factor,
          .high_freq_factor = s.high_freq_factor,
          .original_max_seq_len = double(s.original_max_seq_len)};
}

class Llama {
 public:
  explicit Llama(ModelBuilder& b) : b_(b), m_(b.model()), shape_(stream_shape(b.spec(), b.mesh())) {}

  void build() {
    const ParamId table = b_.table("embedding.tokens", "model.embed_tokens.weight");
    b_.block(std::make_unique<EmbeddingBlock>(shape_, b_.vocabulary(), EmbeddingBlock::Params{table, {}}), -1);
    for (int layer = 0; layer < m_.num_layers; ++layer) {
      attention(layer);
      feed_forward(layer);
    }
    const ParamId norm = rms_norm("head.norm", "model.norm");
    const ParamId head = m_.tie_embeddings ? table : b_.table("head.table", "lm_head.weight");
    const HeadSpec spec{b_.vocabulary(), b_.table_rows(), norm_spec()};
    b_.block(std::make_unique<HeadBlock>(shape_, spec, HeadParams{norm, head, {}}), int(m_.num_layers));
  }

 private:
  NormSpec norm_spec() const { return {.layer_norm = false, .epsilon = float(m_.norm_eps)}; }
  ParamId rms_norm(const std::string& name, const std::string& tensor) {
    return b_.whole_vector(name + ".weight", tensor + ".weight", m_.hidden_size, Init::ones);
  }

  void attention(int layer) {
    const std::string name = fmt::format("layers.{}.attention", layer);
    const std::string tensor = fmt::format("model.layers.{}.self_attn.", layer);
    const HeadCuts heads = cut_heads(m_.num_heads, m_.num_kv_heads, b_.mesh());
    const AttentionSpec spec{.name = name,
                             .heads = heads.q.room,
                             .kv_heads = heads.kv.room,
                             .head_dim = m_.head_dim,
                             .real_heads = heads.q.size(),
                             .window = m_.sliding_window.value_or(0),
                             .norm = norm_spec(),
                             .rope = frequencies_of(m_.rope)};
    const Cut C = uncut(m_.hidden_size), q = heads.q.times(m_.head_dim), kv = heads.kv.times(m_.head_dim);
    AttentionParams p;
    p.norm = rms_norm(name + ".norm", fmt::format("model.layers.{}.input_layernorm", layer));
    p.qkv = b_.stack(
        name + ".qkv.weight",
        {{tensor + "q_proj.weight", {q, C}}, {tensor + "k_proj.weight", {kv, C}}, {tensor + "v_proj.weight", {kv, C}}},
        0, b_.weights());
    share_kv(p.qkv, spec, C.room);
    if (m_.qkv_bias) {
      p.qkv_bias =
          b_.stack(name + ".qkv.bias",
                   {{tensor + "q_proj.bias", {q}}, {tensor + "k_proj.bias", {kv}}, {tensor + "v_proj.bias", {kv}}}, 0,
                   {Init::zeros});
      share_kv(*p.qkv_bias, spec, 1);
    }
    if (m_.qk_norm) {
      p.q_norm = head_norm(name + ".q_norm.weight", tensor + "q_norm.weight");
      p.k_norm = head_norm(name + ".k_norm.weight", tensor + "k_norm.weight");
    }
    p.out = b_.matrix(name + ".out.weight", tensor + "o_proj.weight", C, q, b_.residual_weights());
    b_.block(std::make_unique<AttentionBlock>(shape_, spec, p), layer);
  }

  // The rows of k and v, each with the gradient of this rank's query heads.
  void share_kv(ParamId id, const AttentionSpec& spec, int64_t columns) {
    b_.share(id, {spec.q_width() * columns, spec.qkv_width() * columns, Axis::kv, true});
  }
  // Of every head, hence of every rank.
  ParamId head_norm(const std::string& name, const std::string& tensor) {
    const ParamId id = b_.vector(name, tensor, uncut(m_.head_dim), Init::ones);
    b_.share(id, {0, m_.head_dim, Axis::tp, true});
    return id;
  }

  void feed_forward(int layer) {
    const std::string name = fmt::format("layers.{}.feed_forward", layer),
                      tensor = fmt::format("model.layers.{}.mlp.", layer);
    const Cut C = uncut(m_.hidden_size), F = even_cut(m_.ffn_hidden_size, b_.mesh().slice, b_.mesh().tp);
    FeedForwardParams p;
    p.norm = rms_norm(name + ".norm", fmt::format("model.layers.{}.post_attention_layernorm", layer));
    p.up = b_.stack(name + ".gate_up.weight",
                    {{tensor + "gate_proj.weight", {F, C}}, {tensor + "up_proj.weight", {F, C}}}, 0, b_.weights());
    p.down = b_.matrix(name + ".down.weight", tensor + "down_proj.weight", C, F, b_.residual_weights());
    const FeedForwardSpec spec{.name = name, .width = F.room, .activation = Activation::swiglu, .norm = norm_spec()};
    b_.block(std::make_unique<FeedForwardBlock>(shape_, spec, p), layer);
  }

  ModelBuilder& b_;
  const ModelSpec& m_;
  const StreamShape shape_;
};

}  // namespace

void build_llama(ModelBuilder& b) { Llama(b).build(); }

}  // namespace trainer
