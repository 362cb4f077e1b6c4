// `trainer eval`: loss, logits and gradients of one batch, for comparison with other programs.
#pragma once
#include <CLI/CLI.hpp>

namespace trainer {

void add_evaluate_command(CLI::App&, int& exit_code);

}  // namespace trainer
