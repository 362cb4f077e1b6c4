// GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU, biases everywhere, weights stored [in, out]
// (Conv1D).
#include "core/base/error.h"
#include "core/model/blocks/attention.h"
#include "core/model/blocks/embedding.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/blocks/head.h"
#include "core/model/families.h"

namespace trainer {
namespace {

void check_spec(const ModelSpec& m) {
  check(m.num_kv_heads == m.num_heads && m.head_dim * m.num_heads == m.hidden_size, Exit::spec,
        "model: gpt2 has num_kv_heads = num_heads and head_dim = hidden_size / num_heads, found {} of {} and {} of {}",
        m.num_kv_heads, m.num_heads, m.head_dim, m.hidden_size);
  check(m.qkv_bias && !m.qk_norm && !m.sliding_window, Exit::spec,
        "model: gpt2 has qkv_bias and neither qk_norm nor sliding_window; use family llama for these");
}

class Gpt2 {
 public:
  explicit Gpt2(ModelBuilder& b) : b_(b), m_(b.model()), shape_(stream_shape(b.spec(), b.mesh())) {}

  void build() {
    const ParamId table = b_.table("embedding.tokens", "transformer.wte.weight");
    const ParamId positions = b_.matrix("embedding.positions", "transformer.wpe.weight", uncut(m_.max_seq_len),
                                        uncut(m_.hidden_size), b_.weights());
    b_.share(positions, {0, m_.max_seq_len * m_.hidden_size, Axis::tp, false});  // from all rows, on every rank
    b_.block(std::make_unique<EmbeddingBlock>(shape_, b_.vocabulary(), EmbeddingBlock::Params{table, positions}), -1);
    for (int layer = 0; layer < m_.num_layers; ++layer) {
      attention(layer);
      feed_forward(layer);
    }
    const NormParams norm = layer_norm("head.norm", "transformer.ln_f");
    const ParamId head = m_.tie_embeddings ? table : b_.table("head.table", "lm_head.weight");
    const HeadSpec spec{b_.vocabulary(), b_.table_rows(), norm_spec()};
    b_.block(std::make_unique<HeadBlock>(shape_, spec, HeadParams{norm.weight, head, norm.bias}), int(m_.num_layers));
  }

 private:
  struct NormParams {
    ParamId weight, bias;
  };
  struct LinearParams {
    ParamId weight, bias;
  };
  NormSpec norm_spec() const { return {.layer_norm = true, .epsilon = float(m_.norm_eps)}; }
  NormParams layer_norm(const std::string& name, const std::string& tensor) {
    const ParamId weight = b_.whole_vector(name + ".weight", tensor + ".weight", m_.hidden_size, Init::ones);
    return {weight, b_.whole_vector(name + ".bias", tensor + ".bias", m_.hidden_size, Init::zeros)};
  }
  // Cut by columns: [C, out], of one tensor whose parts lie side by side.
  LinearParams column_parallel(const std::string& name, const std::string& tensor, const std::vector<Cut>& columns) {
    std::vector<ModelBuilder::Part> weights, biases;
    for (const Cut& c : columns) {
      weights.push_back({tensor + ".weight", {uncut(m_.hidden_size), c}});
      biases.push_back({tensor + ".bias", {c}});
    }
    const ParamId weight = b_.stack(name + ".weight", weights, 1, b_.weights());
    return {weight, b_.stack(name + ".bias", biases, 0, {Init::zeros})};
  }
  // Cut by rows: [in, C]; the bias stands behind the sum over the ranks.
  LinearParams row_parallel(const std::string& name, const std::string& tensor, const Cut& rows) {
    const ParamId weight =
        b_.matrix(name + ".weight", tensor + ".weight", rows, uncut(m_.hidden_size), b_.residual_weights());
    return {weight, b_.whole_vector(name + ".bias", tensor + ".bias", m_.hidden_size, Init::zeros)};
  }

  void attention(int layer) {
    const std::string name = fmt::format("layers.{}.attention", layer),
                      tensor = fmt::format("transformer.h.{}.", layer);
    const int64_t C = m_.hidden_size;
    const Cut heads = cut_heads(m_.num_heads, m_.num_heads, b_.mesh()).q, q = heads.times(m_.head_dim);
    const NormParams norm = layer_norm(name + ".norm", tensor + "ln_1");
    const LinearParams qkv = column_parallel(name + ".qkv", tensor + "attn.c_attn",
                                             {q.within(3 * C, 0), q.within(3 * C, C), q.within(3 * C, 2 * C)});
    const LinearParams out = row_parallel(name + ".out", tensor + "attn.c_proj", q);
    const AttentionSpec spec{.name = name,
                             .heads = heads.room,
                             .kv_heads = heads.room,
                             .head_dim = m_.head_dim,
                             .real_heads = heads.size(),
                             .order = WeightOrder::in_out,
                             .norm = norm_spec(),
                             .rope = {}};
    const AttentionParams params{.norm = norm.weight,
                                 .qkv = qkv.weight,
                                 .out = out.weight,
                                 .norm_bias = norm.bias,
                                 .qkv_bias = qkv.bias,
                                 .out_bias = out.bias,
                                 .q_norm = {},
                                 .k_norm = {}};
    b_.block(std::make_unique<AttentionBlock>(shape_, spec, params), layer);
  }

  void feed_forward(int layer) {
    const std::string name = fmt::format("layers.{}.feed_forward", layer),
                      tensor = fmt::format("transformer.h.{}.", layer);
    const Cut F = even_cut(m_.ffn_hidden_size, b_.mesh().slice, b_.mesh().tp);
    const NormParams norm = layer_norm(name + ".norm", tensor + "ln_2");
    const LinearParams up = column_parallel(name + ".up", tensor + "mlp.c_fc", {F});
    const LinearParams down = row_parallel(name + ".down", tensor + "mlp.c_proj", F);
    const FeedForwardSpec spec{.name = name,
                               .width = F.room,
                               .activation = Activation::gelu,
                               .order = WeightOrder::in_out,
                               .norm = norm_spec()};
    const FeedForwardParams params{.norm = norm.weight,
                                   .up = up.weight,
                                   .down = down.weight,
                                   .norm_bias = norm.bias,
                                   .up_bias = up.bias,
                                   .down_bias = down.bias};
    b_.block(std::make_unique<FeedForwardBlock>(shape_, spec, params), layer);
  }

  ModelBuilder& b_;
  const ModelSpec& m_;
  const StreamShape shape_;
};

}  // namespace

void build_gpt2(ModelBuilder& b) {
  check_spec(b.model());
  Gpt2(b).build();
}

}  // namespace trainer
