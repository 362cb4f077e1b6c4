// `trainer eval`: loss, logits and gradients of one batch, for comparison with other programs.
#pragma once
#include <string>

#include "core/engine/feed.h"
#include "core/engine/step_report.h"
#include "io/restore.h"

namespace CLI {
class App;
}

namespace trainer {

struct Evaluation {
  const RunSpec& spec;  // of evaluation_spec
  const Checkpoint& checkpoint;
  Feed& feed;  // whose batch 0 it is
};

// `batch` sequences of the checkpoint's model in fp32, without dropout; `seq_len` 0: the model's max_seq_len.
RunSpec evaluation_spec(const Checkpoint&, int64_t batch, int64_t seq_len);
// `logits` [batch, tokens, vocabulary] to a safetensors file.
void write_logits(const Evaluation&, const std::string& path);
// Every parameter's gradient of the mean loss to a safetensors file; an empty path: none.
StepReport write_gradients(const Evaluation&, const std::string& path);

void add_evaluate_command(CLI::App&, int& exit_code);

}  // namespace trainer
