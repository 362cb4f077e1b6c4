#include "app/signals.h"

#include <csignal>
#include <initializer_list>

namespace trainer {
namespace {
volatile std::sig_atomic_t requested = 0;
extern "C" void remember(int signal) { requested = signal; }
}  // namespace

void watch_signals() {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (int s : {SIGINT, SIGTERM, SIGUSR1}) sigaction(s, &action, nullptr);
}
bool stop_requested() { return requested != 0; }
int requesting_signal() { return requested; }

}  // namespace trainer
