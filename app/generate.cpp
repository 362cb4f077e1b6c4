#include "app/generate.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/checkpoints.h"
#include "app/planning.h"
#include "app/vocabulary.h"
#include "app/wire.h"
#include "core/base/philox.h"
#include "core/engine/forward_pass.h"
#include "io/model_json.h"

namespace trainer {

int32_t sample_token(std::span<const float> logits, const SamplingOptions& o, double uniform) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] > logits[size_t(b)] : a < b;
  };
  if (o.temperature <= 0) return *std::min_element(order.begin(), order.end(), likelier);
  size_t kept = o.top_k > 0 ? std::min(size_t(o.top_k), order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + ptrdiff_t(kept), order.end(), likelier);
  std::vector<double> weight(kept);
  for (size_t i = 0; i < kept; ++i)
    weight[i] = std::exp((double(logits[size_t(order[i])]) - double(logits[size_t(order[0])])) / o.temperature);
  const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
  double nucleus = 0;
  for (size_t i = 0; i < kept; ++i)
    if ((nucleus += weight[i]) >= o.top_p * all) {  // the smallest set with that much of the probability
      kept = i + 1;
      break;
    }
  double left = uniform * std::accumulate(weight.begin(), weight.begin() + ptrdiff_t(kept), 0.0);
  for (size_t i = 0; i < kept; ++i)
    if ((left -= weight[i]) < 0) return order[i];
  return order[kept - 1];
}

namespace {

struct Options {
  std::string checkpoint, prompt;
  int64_t tokens = 100;
  uint64_t seed = 1;
  bool json = false;
  SamplingOptions sampling;
};

// A model, its weights and a decoder on them.
class Generator {
 public:
  explicit Generator(const Checkpoint& checkpoint)
      : spec_(decoding_spec(model_from_json(checkpoint.manifest.run.model, checkpoint.path))),
        model_(build_model(spec_, mesh_)),
        layout_(lay_out_forward(plan_state(spec_, model_), model_, 1)),
        memory_(open_private_memory()),
        device_(open_cpu(layout_.program, memory_->reserve(layout_.program.arena_bytes))),
        groups_(open_solo_groups()),
        pass_(layout_, model_, *device_, *groups_),
        decoder_(pass_) {
    load_state(checkpoint, state_view(layout_.program, model_, device_->arena()), {.weights_only = true});
  }
  std::vector<int32_t> extend(const std::vector<int32_t>& prompt, const Options& o) {
    std::vector<int32_t> made;
    std::span<const float> logits;
    for (int32_t token : prompt) logits = decoder_.append(token);
    while (int64_t(made.size()) < o.tokens && decoder_.length() < spec_.model.max_seq_len) {
      const double uniform = uniform_open(philox(o.seed, made.size())[0]);
      made.push_back(sample_token(logits.first(size_t(spec_.model.vocab_size)), o.sampling, uniform));
      if (int64_t(made.size()) < o.tokens && decoder_.length() < spec_.model.max_seq_len)
        logits = decoder_.append(made.back());
    }
    return made;
  }
  int64_t max_seq_len() const { return spec_.model.max_seq_len; }

 private:
  RunSpec spec_;
  Mesh mesh_;
  Model model_;
  ForwardLayout layout_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Groups> groups_;
  ForwardPass pass_;
  Decoder decoder_;
};

int run(const Options& o) {
  install_cpu();
  const Checkpoint checkpoint = open_named_checkpoint(o.checkpoint);
  const auto tokenizer = open_described_tokenizer(checkpoint.manifest.run.tokenizer);
  const std::vector<int32_t> prompt = tokenizer->encode(o.prompt);
  check(!prompt.empty(), Exit::usage, "--prompt: wanted some text to go on from, found none");
  Generator generator(checkpoint);
  check(int64_t(prompt.size()) < generator.max_seq_len(), Exit::usage,
        "--prompt: {} tokens, and the model's max_seq_len is {}; shorten it", prompt.size(), generator.max_seq_len());
  const std::vector<int32_t> made = generator.extend(prompt, o);
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), made.begin(), made.end());
  const std::string text = tokenizer->decode(all);
  if (o.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"text", text}, {"tokens", made}}.dump(
                           1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  else fmt::print("{}\n", text);
  return int(Exit::done);
}

}  // namespace

void add_generate_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("generate", "text from a checkpoint");
  auto o = std::make_shared<Options>();
  command->add_option("--checkpoint", o->checkpoint, "step directory, or a directory of steps: its newest")->required();
  command->add_option("--prompt", o->prompt, "text to go on from")->required();
  command->add_option("--tokens", o->tokens, "how many to make")->capture_default_str();
  command->add_option("--temperature", o->sampling.temperature, "0: always the likeliest")->capture_default_str();
  command->add_option("--top-k", o->sampling.top_k, "only the k likeliest; 0: all")->capture_default_str();
  command->add_option("--top-p", o->sampling.top_p, "only the likeliest that hold this much probability")
      ->capture_default_str();
  command->add_option("--seed", o->seed)->capture_default_str();
  command->add_flag("--json", o->json, "print one JSON object");
  command->callback([o, &exit_code] { exit_code = run(*o); });
}

}  // namespace trainer
