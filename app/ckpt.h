// `trainer ckpt`: look at checkpoints, compare them, and exchange them with Hugging Face.
#pragma once

namespace CLI {
class App;
}

namespace trainer {

// Adds `ckpt list | inspect | verify | diff | import | export`; their callbacks set `exit_code` (a reference that
// outlives the app).
void add_ckpt_commands(CLI::App&, int& exit_code);

}  // namespace trainer
