// `trainer plan`: what a run will need and do, before it starts.
#pragma once

namespace CLI {
class App;
}

namespace trainer {

void add_plan_command(CLI::App&, int& exit_code);

}  // namespace trainer
