// `trainer generate`: text from a checkpoint.
#pragma once
#include <cstdint>
#include <random>
#include <span>

namespace CLI {
class App;
}

namespace trainer {

struct SamplingOptions {
  double temperature = 1;  // 0: always the likeliest
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
};
// Draws the next token; `uniform` in [0, 1) decides. Ties are broken by the smaller id.
int32_t sample_token(std::span<const float> logits, const SamplingOptions&, double uniform);

void add_generate_command(CLI::App&, int& exit_code);

}  // namespace trainer
