// SIGINT, SIGTERM and SIGUSR1 ask the run to save and to stop with exit code 17. A second one changes nothing: the save
// goes on.
#pragma once

namespace trainer {

void watch_signals();     // once, before anything slow
bool stop_requested();    // polled at every boundary: step, evaluation pass, load
int requesting_signal();  // 0: none

}  // namespace trainer
