// One line on a terminal that is rewritten, or nothing where there is no terminal.
#pragma once
#include <chrono>
#include <string>

namespace trainer {

class Progress {
 public:
  // `done` of `total` steps are behind us already (a resumed run).
  Progress(int64_t done, int64_t total);
  ~Progress();
  void show(int64_t done, const std::string& text);
  // Clears the line, so that something else can be printed.
  void clear();

 private:
  const int64_t first_, total_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// "1:02:03", "4:05"
std::string format_duration(double seconds);

}  // namespace trainer
