// `trainer plan`: what a run will need and do, before it starts.
#pragma once
#include <CLI/CLI.hpp>

namespace trainer {

void add_plan_command(CLI::App&, int& exit_code);

}  // namespace trainer
