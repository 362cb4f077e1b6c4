#include "core/spec/names.h"

#include <algorithm>
#include <utility>

namespace trainer {
namespace {

constexpr size_t kLongestName = 64;

// Optimal string alignment distance.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// Names of Hugging Face, nanoGPT, Megatron-LM, torchtitan, litGPT and llm.c.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"n_layers", "model.num_layers"},
    {"n_layer", "model.num_layers"},
    {"layers", "model.num_layers"},
    {"num_hidden_layers", "model.num_layers"},
    {"dim", "model.hidden_size"},
    {"d_model", "model.hidden_size"},
    {"n_embd", "model.hidden_size"},
    {"embed_dim", "model.hidden_size"},
    {"n_head", "model.num_heads"},
    {"n_heads", "model.num_heads"},
    {"num_attention_heads", "model.num_heads"},
    {"n_kv_heads", "model.num_kv_heads"},
    {"n_kv_head", "model.num_kv_heads"},
    {"num_key_value_heads", "model.num_kv_heads"},
    {"num_query_groups", "model.num_kv_heads"},
    {"kv_channels", "model.head_dim"},
    {"intermediate_size", "model.ffn_hidden_size"},
    {"n_inner", "model.ffn_hidden_size"},
    {"ffn_dim", "model.ffn_hidden_size"},
    {"hidden_dim", "model.ffn_hidden_size"},
    {"block_size", "model.max_seq_len"},
    {"n_positions", "model.max_seq_len"},
    {"n_ctx", "model.max_seq_len"},
    {"max_position_embeddings", "model.max_seq_len"},
    {"padded_vocab_size", "model.vocab_size"},
    {"n_vocab", "model.vocab_size"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"rms_norm_eps", "model.norm_eps"},
    {"layer_norm_epsilon", "model.norm_eps"},
    {"layernorm_epsilon", "model.norm_eps"},
    {"attention_bias", "model.qkv_bias"},
    {"add_qkv_bias", "model.qkv_bias"},
    {"qk_layernorm", "model.qk_norm"},
    {"use_qk_norm", "model.qk_norm"},
    {"window_size", "model.sliding_window"},
    {"hidden_dropout", "model.dropout"},
    {"attention_dropout", "model.dropout"},
    {"initializer_range", "model.init_std"},
    {"init_method_std", "model.init_std"},
    {"rope_theta", "model.rope.theta"},
    {"rotary_base", "model.rope.theta"},
    {"rope_scaling", "model.rope.scaling"},
    {"rope_type", "model.rope.scaling.kind"},
    {"original_max_position_embeddings", "model.rope.scaling.original_max_seq_len"},
    {"model_type", "model.family"},
    {"architecture", "model.family"},
    {"tokenizer_path", "data.tokenizer"},
    {"tokenizer_model", "data.tokenizer"},
    {"data_path", "data.train"},
    {"train_data_path", "data.train"},
    {"dataset", "data.train"},
    {"val", "data.valid"},
    {"validation", "data.valid"},
    {"seq_length", "data.seq_len"},
    {"sequence_length", "data.seq_len"},
    {"max_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"train_iters", "train.steps"},
    {"num_steps", "train.steps"},
    {"max_tokens", "train.tokens"},
    {"batch_size", "train.global_batch"},
    {"global_batch_size", "train.global_batch"},
    {"micro_batch_size", "train.micro_batch"},
    {"local_batch_size", "train.micro_batch"},
    {"per_device_train_batch_size", "train.micro_batch"},
    {"clip_grad", "train.clip"},
    {"grad_clip", "train.clip"},
    {"max_norm", "train.clip"},
    {"max_grad_norm", "train.clip"},
    {"gradient_clipping", "train.clip"},
    {"rampup_batch_size", "train.ramp"},
    {"eval_interval", "train.eval_every"},
    {"eval_steps", "train.eval_every"},
    {"eval_iters", "train.eval_sequences"},
    {"optim", "optimizer.kind"},
    {"learning_rate", "optimizer.lr"},
    {"max_lr", "optimizer.lr"},
    {"beta1", "optimizer.betas"},
    {"beta2", "optimizer.betas"},
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"adam_eps", "optimizer.eps"},
    {"adam_epsilon", "optimizer.eps"},
    {"lr_scheduler", "schedule.kind"},
    {"lr_scheduler_type", "schedule.kind"},
    {"lr_decay_style", "schedule.kind"},
    {"scheduler", "schedule.kind"},
    {"warmup_steps", "schedule.warmup"},
    {"warmup_iters", "schedule.warmup"},
    {"lr_warmup_iters", "schedule.warmup"},
    {"min_lr", "schedule.final_lr"},
    {"decay_steps", "schedule.decay"},
    {"tensor_model_parallel_size", "parallel.tp"},
    {"tensor_parallel_degree", "parallel.tp"},
    {"tensor_parallel_size", "parallel.tp"},
    {"context_parallel_size", "parallel.cp"},
    {"context_parallel_degree", "parallel.cp"},
    {"expert_model_parallel_size", "parallel.ep"},
    {"expert_parallel_degree", "parallel.ep"},
    {"pipeline_model_parallel_size", "parallel.pp"},
    {"pipeline_parallel_degree", "parallel.pp"},
    {"pipeline_parallel_size", "parallel.pp"},
    {"data_parallel_size", "parallel.dp"},
    {"data_parallel_replicate_degree", "parallel.dp"},
    {"data_parallel_shard_degree", "parallel.zero_shard"},
    {"zero_stage", "parallel.zero"},
    {"virtual_pipeline_model_parallel_size", "parallel.pipeline.virtual_stages"},
    {"pipeline_parallel_schedule", "parallel.pipeline.schedule"},
    {"dtype", "precision.compute"},
    {"torch_dtype", "precision.compute"},
    {"allow_tf32", "precision.tf32"},
    {"activation_checkpointing", "memory.recompute"},
    {"activation_checkpoint", "memory.recompute"},
    {"gradient_checkpointing", "memory.recompute"},
    {"recompute_granularity", "memory.recompute"},
    {"save_dir", "checkpoint.dir"},
    {"save_interval", "checkpoint.every"},
    {"save_steps", "checkpoint.every"},
    {"save_every", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"resume_from", "checkpoint.init_from"},
    {"async", "checkpoint.asynchronous"},
    {"async_save", "checkpoint.asynchronous"},
    {"out_dir", "log.dir"},
    {"output_dir", "log.dir"},
    {"log_interval", "log.every"},
    {"logging_steps", "log.every"},
    {"device_type", "device.kind"},
    {"num_threads", "device.threads"},
};

}  // namespace

std::string nearest(std::string_view wrong, const std::vector<std::string>& names) {
  if (wrong.size() > kLongestName) return "";
  std::string best;
  size_t best_distance = std::max<size_t>(2, wrong.size() / 3) + 1;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(wrong, name);
    // Two edits make any two-letter word of any other.
    if (distance >= best_distance || distance >= std::max(wrong.size(), name.size())) continue;
    best = name;
    best_distance = distance;
  }
  return best;
}

std::string_view path_of_alias(std::string_view name) {
  const auto* found = std::find_if(std::begin(kAliases), std::end(kAliases), [&](auto& a) { return a.first == name; });
  return found == std::end(kAliases) ? std::string_view{} : found->second;
}

}  // namespace trainer
