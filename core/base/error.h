// The one exception of the project, and the exit codes a shell script branches on.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace trainer {

enum class Exit : int {
  done = 0,
  difference = 1,  // a comparison (`parity`, `ckpt diff`) found a difference
  usage = 2,
  spec = 10,
  data = 11,
  checkpoint = 12,
  in_use = 13,
  disk = 14,
  rank = 15,
  corruption = 16,
  preempted = 17,
  hang = 18,
  not_finite = 19,
  memory = 20,
  device = 21,
};

// What ends the run: thrown anywhere, caught once in main, printed as one line (what, where, wanted, found, what to do).
class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Exit code() const { return code_; }

 private:
  Exit code_;
};

template <class... Args>
[[noreturn]] void fail(Exit code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// A check at the door: bad input, not a programmer's mistake (that is `assert`).
template <class... Args>
void check(bool holds, Exit code, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail(code, format, std::forward<Args>(args)...);
}

}  // namespace trainer
