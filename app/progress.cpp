#include "app/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace trainer {

std::string format_duration(double seconds) {
  const auto s = int64_t(std::max(0.0, seconds) + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

Progress::Progress(int64_t done, int64_t total) : first_(done), total_(total), terminal_(isatty(STDERR_FILENO)) {}
Progress::~Progress() { clear(); }

void Progress::show(int64_t done, const std::string& text) {
  if (!terminal_) return;
  constexpr int kWidth = 24;
  const double share = total_ > 0 ? double(done) / double(total_) : 1;
  const int filled = int(share * kWidth);
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const std::string eta =
      done > first_ ? format_duration(elapsed * double(total_ - done) / double(done - first_)) : std::string("?");
  fmt::print(stderr, "\r\033[K[{}{}] {:3.0f} %  {}  ETA {}", std::string(size_t(filled), '='),
             std::string(size_t(kWidth - filled), ' '), 100 * share, text, eta);
  std::fflush(stderr);
}
void Progress::clear() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

}  // namespace trainer
