// A program that the emulated device ends: it runs in a child of this process.
#pragma once
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace trainer::test {

struct End {
  int code;             // the exit code; 128 and the signal's number of a child that a signal ended
  std::string message;  // what it wrote to stderr
};

template <class F>
End in_child(F program) {
  int ends[2];
  if (pipe(ends)) std::abort();
  std::fflush(nullptr);  // or the child writes it once more
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    try {
      program();
    } catch (const std::exception&) { _exit(1); }
    _exit(0);
  }
  close(ends[1]);
  End end{0, {}};
  char text[4096];
  for (ssize_t n; (n = read(ends[0], text, sizeof text)) > 0;) end.message.append(text, size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

// The hidden test case of this program, in a process that begins anew: after a fork the thread sanitizer no longer
// looks.
inline End run_hidden(const char* test_case) {
  return in_child([=] {
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    execl("/proc/self/exe", "test", test_case, nullptr);
    _exit(127);
  });
}

// A variable of the environment, for a scope.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    const char* before = std::getenv(name);
    had_ = before != nullptr;
    if (had_) before_ = before;
    setenv(name, value, 1);
  }
  ~Setting() {
    if (had_) setenv(name_, before_.c_str(), 1);
    else unsetenv(name_);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  bool had_ = false;
  std::string before_;
};

}  // namespace trainer::test
