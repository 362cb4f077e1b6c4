// `trainer parity A.yaml B.yaml`: do two layouts train the same model alike?
//
// Both specs run for a few steps, each with the ranks that its degrees ask for, at a constant learning rate, saving
// every step. Losses are compared step by step, then each step's tensors in the model's order: gradients' running means
// (moment1), then weights. A tensor's difference is measured against the norm of all tensors of its kind, so that a key
// bias, whose true gradient is zero, does not count for what it is: rounding.
#pragma once
#include <CLI/CLI.hpp>

namespace trainer {

void add_parity_command(CLI::App&, int& exit_code);

}  // namespace trainer
