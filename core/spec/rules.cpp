#include "core/spec/rules.h"

#include <algorithm>
#include <numeric>

#include "core/spec/table.h"

namespace trainer {
namespace {

class Rules {
 public:
  Rules(LoadedSpec& loaded, const std::set<std::string>& bad) : loaded_(loaded), s_(loaded.spec), bad_(bad) {}

  void complete() {
    ModelSpec& m = s_.model;
    const bool gpt2 = m.family == Family::gpt2;
    if (!given("model.num_kv_heads")) m.num_kv_heads = m.num_heads;
    if (!given("model.head_dim") && m.num_heads > 0) m.head_dim = m.hidden_size / m.num_heads;
    if (!given("model.ffn_hidden_size") && gpt2) m.ffn_hidden_size = 4 * m.hidden_size;
    if (!given("model.tie_embeddings")) m.tie_embeddings = gpt2;
    if (!given("model.qkv_bias")) m.qkv_bias = gpt2;
    if (!given("data.seq_len")) s_.data.seq_len = m.max_seq_len;
    if (!given("precision.reduce")) s_.precision.reduce = s_.precision.gradients;
  }

  void check() {
    check_conditions();
    check_heads();
    if (sound({"model.family"}) && s_.model.family == Family::gpt2) check_gpt2();
    if (sound({"model.family"}) && s_.model.family == Family::llama) check_llama();
    check_data();
    check_length();
    check_batches();
    check_schedule();
    check_parallel();
    check_pipeline();
    check_checkpoint();
  }

 private:
  using Paths = std::vector<std::string>;
  LoadedSpec& loaded_;
  RunSpec& s_;
  const std::set<std::string>& bad_;

  bool given(const std::string& path) const { return loaded_.origins.contains(path); }
  bool sound(const Paths& paths) const {
    return std::none_of(paths.begin(), paths.end(), [&](const std::string& path) {
      const size_t dot = path.find('.');
      return bad_.contains(path) || bad_.contains(path.substr(0, dot)) || bad_.contains("");
    });
  }
  // The problem stands at the first of `paths` that is given.
  void refuse(const Paths& paths, std::string wanted, std::string found, std::string advice) {
    const auto first = std::find_if(paths.begin(), paths.end(), [&](const auto& p) { return given(p); });
    const std::string& key = first == paths.end() ? paths.front() : *first;
    const Origin at = position_of(loaded_, key);
    loaded_.problems.push_back(
        {at.file, at.line, at.column, key, std::move(wanted), std::move(found), std::move(advice)});
  }

  void check_conditions() {
    if (!sound({"model.family", "schedule.kind", "model.rope.scaling.kind"})) return;
    for (const auto& key : spec_table()) {
      const Condition* only = key.traits.only;
      if (!only || only->holds(s_) || !given(key.path) || !sound({key.path})) continue;
      refuse({key.path}, "this key only with " + only->words, key.path, "remove it: it would have no effect");
    }
  }

  void check_heads() {
    const ModelSpec& m = s_.model;
    const int64_t heads = m.num_heads, width = m.hidden_size;
    if (sound({"model.num_heads", "model.num_kv_heads"}) && given("model.num_kv_heads") &&
        heads % m.num_kv_heads != 0) {
      int64_t legal = std::min(m.num_kv_heads, heads);
      while (heads % legal != 0) --legal;
      refuse({"model.num_kv_heads"}, fmt::format("a divisor of model.num_heads ({})", heads),
             fmt::format("{}", m.num_kv_heads), fmt::format("the nearest smaller one is {}", legal));
    }
    if (sound({"model.hidden_size", "model.num_heads", "model.head_dim"}) && !given("model.head_dim") &&
        width % heads != 0)
      refuse({"model.hidden_size"}, fmt::format("a multiple of model.num_heads ({})", heads), fmt::format("{}", width),
             fmt::format("the next one is {}; or give model.head_dim", (width / heads + 1) * heads));
  }

  void check_gpt2() {
    const ModelSpec& m = s_.model;
    if (sound({"model.qk_norm"}) && m.qk_norm) refuse({"model.qk_norm"}, "false for gpt2", "true", "use family llama");
    if (sound({"model.qkv_bias"}) && !m.qkv_bias)
      refuse({"model.qkv_bias"}, "true for gpt2", "false", "gpt2 has biases everywhere; use family llama");
    if (sound({"model.num_heads", "model.num_kv_heads"}) && m.num_kv_heads != m.num_heads)
      refuse({"model.num_kv_heads"}, fmt::format("model.num_heads ({}) for gpt2", m.num_heads),
             fmt::format("{}", m.num_kv_heads), "use family llama for grouped heads");
    if (sound({"model.num_heads", "model.head_dim", "model.hidden_size"}) && given("model.head_dim") &&
        m.head_dim * m.num_heads != m.hidden_size)
      refuse({"model.head_dim"}, "model.hidden_size / model.num_heads for gpt2", fmt::format("{}", m.head_dim),
             "remove it");
  }

  void check_llama() {
    const ModelSpec& m = s_.model;
    if (sound({"model.ffn_hidden_size"}) && !given("model.ffn_hidden_size"))
      refuse({"model.ffn_hidden_size"}, "integer >= 1", "no such key", "add ffn_hidden_size to section model");
    if (sound({"model.head_dim", "model.hidden_size", "model.num_heads"}) && m.head_dim % 2 != 0 &&
        (given("model.head_dim") || m.hidden_size % m.num_heads == 0))
      refuse({"model.head_dim", "model.hidden_size"}, "an even head_dim, for RoPE turns pairs",
             fmt::format("{}", m.head_dim), fmt::format("use {}", m.head_dim + 1));
    const RopeScaling& r = m.rope.scaling;
    const std::string low = "model.rope.scaling.low_freq_factor", high = "model.rope.scaling.high_freq_factor";
    if (r.kind != RopeScalingKind::none && sound({low, high}) && r.low_freq_factor >= r.high_freq_factor)
      refuse({low, high}, "low_freq_factor < high_freq_factor",
             fmt::format("{} and {}", r.low_freq_factor, r.high_freq_factor), "Llama 3 has 1 and 4");
  }

  void check_data() {
    const DataSpec& d = s_.data;
    const int64_t longest = s_.model.max_seq_len, vocab = s_.model.vocab_size;
    if (sound({"data.seq_len", "model.max_seq_len"}) && d.seq_len > longest)
      refuse({"data.seq_len"}, fmt::format("at most model.max_seq_len ({})", longest), fmt::format("{}", d.seq_len),
             fmt::format("the nearest legal value is {}", longest));
    if (sound({"data.valid", "data.split"}) && d.split && !d.valid.empty())
      refuse({"data.split"}, "data.valid or a split of data.train", "both", "remove one of the two");
    if (sound({"data.tokenizer", "model.vocab_size"}) && d.tokenizer == "bytes" && vocab < 257)
      refuse({"model.vocab_size"}, "at least 257 for tokenizer bytes", fmt::format("{}", vocab),
             "the nearest legal value is 257");
    if (sound({"data.valid", "data.split", "train.eval_every"}) && s_.train.eval_every && !d.split && d.valid.empty())
      refuse({"train.eval_every"}, "validation data", "none",
             "give data.valid or data.split, or remove train.eval_every");
  }

  void check_length() {
    const TrainSpec& t = s_.train;
    if (!sound({"train.steps", "train.tokens"}) || t.steps.has_value() != t.tokens.has_value()) return;
    if (t.steps)
      refuse({"train.tokens"}, "train.steps or train.tokens", "both", "remove one of the two, or set it to none");
    else
      refuse({"train.steps", "train.tokens"}, "train.steps or train.tokens", "neither", "add steps to section train");
  }

  void check_batch(const std::string& path, const BatchSize& batch) {
    const int64_t seq_len = s_.data.seq_len, micro = s_.train.micro_batch, dp = s_.parallel.dp.value_or(1);
    if (seq_len <= 0) return;
    if (batch.in_tokens && batch.count % seq_len != 0) {
      refuse({path}, fmt::format("a multiple of data.seq_len ({}) tokens", seq_len),
             fmt::format("{} tokens", batch.count),
             fmt::format("the next one is {} tokens", (batch.count / seq_len + 1) * seq_len));
      return;
    }
    const int64_t sequences = batch.in_tokens ? batch.count / seq_len : batch.count, pass = micro * dp;
    if (sequences % pass != 0)
      refuse({path}, fmt::format("a multiple of micro_batch x dp ({} sequences)", pass), fmt::format("{}", sequences),
             fmt::format("the next one is {}", (sequences / pass + 1) * pass));
  }

  void check_batches() {
    const TrainSpec& t = s_.train;
    if (!sound({"model.max_seq_len", "data.seq_len", "train.micro_batch", "parallel.dp"})) return;
    if (sound({"train.global_batch"})) check_batch("train.global_batch", t.global_batch);
    if (!sound({"train.ramp"})) return;
    for (size_t i = 0; i < t.ramp.size(); ++i) {
      check_batch("train.ramp", t.ramp[i].global_batch);
      if (i > 0 && t.ramp[i].tokens <= t.ramp[i - 1].tokens)
        refuse({"train.ramp"}, "growing numbers of tokens",
               fmt::format("{} after {}", t.ramp[i].tokens, t.ramp[i - 1].tokens), "sort the ramp by tokens");
    }
  }

  // Steps of the run, where they are known before it: 0 where not.
  int64_t run_steps() const {
    const TrainSpec& t = s_.train;
    if (!sound(
            {"train.steps", "train.tokens", "train.global_batch", "train.ramp", "data.seq_len", "model.max_seq_len"}))
      return 0;
    if (t.steps && !t.tokens) return *t.steps;
    if (!t.tokens || t.steps || !t.ramp.empty() || s_.data.seq_len <= 0) return 0;
    const int64_t tokens_per_step = sequences_per_step(s_, 0) * s_.data.seq_len;
    return tokens_per_step == 0 ? 0 : (*t.tokens - 1) / tokens_per_step + 1;
  }

  void check_schedule() {
    const ScheduleSpec& d = s_.schedule;
    if (!sound({"schedule.kind", "schedule.warmup", "schedule.decay"})) return;
    const bool wsd = d.kind == ScheduleKind::wsd;
    if (wsd && !given("schedule.decay"))
      refuse({"schedule.decay"}, "steps >= 1", "no such key", "add decay to section schedule");
    if (const int64_t steps = run_steps(); steps > 0) {
      const std::string limit = fmt::format("at most the {} steps of the run", steps);
      if (d.warmup > steps)
        refuse({"schedule.warmup"}, limit, fmt::format("{}", d.warmup),
               fmt::format("the nearest legal value is {}", steps));
      else if (wsd && d.decay > steps)
        refuse({"schedule.decay"}, limit, fmt::format("{}", d.decay),
               fmt::format("the nearest legal value is {}", steps));
      else if (wsd && d.warmup + d.decay > steps)
        refuse({"schedule.decay"}, "warmup and decay together " + limit, fmt::format("{} + {}", d.warmup, d.decay),
               fmt::format("the nearest legal value is {}", steps - d.warmup));
    }
    if (d.kind != ScheduleKind::constant && sound({"schedule.final_lr", "optimizer.lr"}) &&
        d.final_lr > s_.optimizer.lr)
      refuse({"schedule.final_lr"}, fmt::format("at most optimizer.lr ({})", s_.optimizer.lr),
             fmt::format("{}", d.final_lr), "the learning rate falls towards final_lr");
  }

  void check_parallel() {
    const ParallelSpec& p = s_.parallel;
    std::vector<std::string> axes = p.order;
    std::sort(axes.begin(), axes.end());
    if (sound({"parallel.order"}) && axes != std::vector<std::string>{"cp", "dp", "pp", "tp"})
      refuse({"parallel.order"}, "each of tp, cp, dp, pp once", join(p.order, ", "), "write [tp, cp, dp, pp]");
    if (sound({"parallel.tp", "parallel.sequence_parallel"}) && p.sequence_parallel && p.tp == 1)
      refuse({"parallel.sequence_parallel"}, "false with tp 1", "true", "set parallel.tp, or remove it");
    if (sound({"parallel.tp", "model.num_heads"}) && p.tp > s_.model.num_heads)
      refuse({"parallel.tp"},
             fmt::format("at most model.num_heads ({}), for a rank has whole heads", s_.model.num_heads),
             fmt::format("{}", p.tp), fmt::format("the nearest legal value is {}", s_.model.num_heads));
    if (sound({"parallel.dp", "parallel.zero_shard"}) && p.dp && p.zero_shard && *p.dp % *p.zero_shard != 0)
      refuse({"parallel.zero_shard"}, fmt::format("a divisor of parallel.dp ({})", *p.dp),
             fmt::format("{}", *p.zero_shard), "write all, or a divisor");
    if (sound({"parallel.zero", "parallel.zero_keep"}) && p.zero_keep > 0 && p.zero != 3)
      refuse({"parallel.zero_keep"}, "0 unless parallel.zero is 3", fmt::format("{}", p.zero_keep), "remove it");
    if (sound({"parallel.ep"}) && p.ep > 1)
      refuse({"parallel.ep"}, "1 for a model without experts", fmt::format("{}", p.ep), "remove it");
  }

  void check_pipeline() {
    const ParallelSpec& p = s_.parallel;
    const PipelineSpec& pipe = p.pipeline;
    const int64_t layers = s_.model.num_layers, chunks = p.pp * pipe.virtual_stages;
    if (sound({"parallel.pp", "parallel.pipeline.virtual_stages", "model.num_layers"}) && chunks > layers)
      refuse({"parallel.pp", "parallel.pipeline.virtual_stages"},
             fmt::format("pp x virtual_stages at most model.num_layers ({})", layers), fmt::format("{}", chunks),
             "a chunk has at least one layer");
    if (const int wanted = chunks_of(pipe.schedule);
        sound({"parallel.pipeline.schedule", "parallel.pipeline.virtual_stages"}) && wanted != 0 &&
        pipe.virtual_stages != wanted)
      refuse({"parallel.pipeline.virtual_stages", "parallel.pipeline.schedule"},
             fmt::format("virtual_stages {} with this schedule", wanted), fmt::format("{}", pipe.virtual_stages),
             "zb_v and dualpipe_v have 2, interleaved has any number, the others have 1");
    if (sound({"parallel.pp", "parallel.pipeline.virtual_stages", "parallel.pipeline.split"}) && !pipe.split.empty() &&
        int64_t(pipe.split.size()) != chunks)
      refuse({"parallel.pipeline.split"},
             fmt::format("a number for each of pp x virtual_stages ({}) positions", chunks),
             fmt::format("{}", pipe.split.size()), "write auto, or one number of layers for each position");
    const int64_t split = std::accumulate(pipe.split.begin(), pipe.split.end(), int64_t{0});
    if (sound({"model.num_layers", "parallel.pipeline.split"}) && !pipe.split.empty() && split != layers)
      refuse({"parallel.pipeline.split"}, fmt::format("numbers whose sum is model.num_layers ({})", layers),
             fmt::format("{}", split), "each layer lies at one position");
    if (sound({"parallel.pp", "parallel.pipeline.post_validation"}) && pipe.post_validation && p.pp == 1)
      refuse({"parallel.pipeline.post_validation"}, "false with pp 1", "true",
             "one stage has nobody to wait for: set parallel.pp, or remove it");
    if (sound({"device.cuda_graph", "parallel.pipeline.post_validation"}) && pipe.post_validation &&
        s_.device.cuda_graph)
      refuse({"parallel.pipeline.post_validation"}, "false with device.cuda_graph", "true",
             "a step is not yet kept as a graph while another runs: remove one of the two");
  }

  void check_checkpoint() {
    const CheckpointSpec& c = s_.checkpoint;
    if (sound({"checkpoint.every", "checkpoint.keep_every"}) && c.keep_every &&
        (!c.every || *c.keep_every % *c.every != 0))
      refuse({"checkpoint.keep_every"},
             c.every ? fmt::format("a multiple of checkpoint.every ({})", *c.every) : "checkpoint.every as well",
             fmt::format("{}", *c.keep_every), "only steps that are saved can be kept");
    const ResilienceSpec& r = s_.resilience;
    if (sound({"resilience.heartbeat", "resilience.dead_after"}) && r.heartbeat >= r.dead_after)
      refuse({"resilience.dead_after", "resilience.heartbeat"},
             fmt::format("more than resilience.heartbeat ({}s)", r.heartbeat), fmt::format("{}s", r.dead_after),
             "allow several heartbeats");
  }
};

}  // namespace

Origin position_of(const LoadedSpec& loaded, const std::string& path) {
  for (std::string at = path; !at.empty();) {
    if (const auto found = loaded.origins.find(at); found != loaded.origins.end()) return found->second;
    const size_t dot = at.rfind('.');
    at.resize(dot == at.npos ? 0 : dot);
  }
  return {.file = loaded.file};
}

void complete_and_check(LoadedSpec& loaded, const std::set<std::string>& bad) {
  Rules rules(loaded, bad);
  rules.complete();
  rules.check();
}

}  // namespace trainer
