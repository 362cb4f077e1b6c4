#include "app/signals.h"

#include <csignal>
#include <initializer_list>

namespace trainer {
namespace {
std::atomic<int> requested{0};
static_assert(std::atomic<int>::is_always_lock_free);
extern "C" void remember(int signal) {
  int none = 0;
  requested.compare_exchange_strong(none, signal);
}
}  // namespace

void watch_signals() {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (int s : {SIGINT, SIGTERM, SIGUSR1}) sigaction(s, &action, nullptr);
}
const std::atomic<int>& stop_signal() { return requested; }

}  // namespace trainer
