// SIGINT, SIGTERM and SIGUSR1 ask the run to save and to stop with exit code 17. A second one changes nothing: the save
// goes on.
#pragma once
#include <atomic>

namespace trainer {

void watch_signals();                   // once, before anything slow
const std::atomic<int>& stop_signal();  // the first signal that came; 0: none. Every step's outcome asks for it.

}  // namespace trainer
