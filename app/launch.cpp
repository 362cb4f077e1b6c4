#include "app/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>

#include "app/cores.h"
#include "app/place.h"
#include "core/base/error.h"
#include "parallel/comm/sockets.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{10};
constexpr int kTickMs = 200;

struct Child {
  int rank = 0;
  pid_t pid = 0;
  Socket errors;     // its stderr
  std::string line;  // begun, not yet ended
  bool running = true;
};

class Launch {
 public:
  Launch(int ranks, char** argv);
  int run();

 private:
  void start(int rank);
  [[noreturn]] void become(int rank, int errors, const std::vector<std::string>& environment);
  void take_signals();
  void reap();
  void judge(const Child&, int status);
  void copy_errors(Child&);
  void print(const Child&, std::string_view line);
  void end_stragglers();
  std::string name(const Child& c) const { return fmt::format("rank {} (pid {})", c.rank, c.pid); }

  const int ranks_;
  char** const argv_;
  const pid_t parent_ = getpid();
  const std::string job_ =
      fmt::format("local {} {}", parent_, std::chrono::system_clock::now().time_since_epoch().count());
  std::vector<std::vector<int>> allowed_;  // by rank
  sigset_t handled_{}, before_{};
  Socket signals_;
  std::vector<Child> children_;
  int running_ = 0;
  int own_failure_ = 0;  // exit code of the first that failed for a reason of its own
  bool lost_ = false, preempted_ = false;
  std::optional<Clock::time_point> failed_at_;
};

Launch::Launch(int ranks, char** argv) : ranks_(ranks), argv_(argv), allowed_(size_t(ranks), allowed_cores()) {
  sigemptyset(&handled_);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&handled_, signal);
  sigprocmask(SIG_BLOCK, &handled_, &before_);
  signals_ = Socket(signalfd(-1, &handled_, SFD_CLOEXEC | SFD_NONBLOCK));
  check(signals_.valid(), Exit::rank, "cannot watch for signals: {}", std::strerror(errno));
  children_.reserve(size_t(ranks));
  for (int rank = 0; rank < ranks; ++rank) start(rank);
}

void Launch::start(int rank) {
  std::vector<std::string> environment;
  for (const auto& [name, value] : trainer::environment()) environment.push_back(name + "=" + value);
  environment.push_back(fmt::format("{}={}", kRankVariable, rank));
  environment.push_back(fmt::format("{}={}", kRanksVariable, ranks_));
  environment.push_back(fmt::format("{}={}", kJobVariable, job_));
  int pipe[2];
  check(pipe2(pipe, O_CLOEXEC) == 0, Exit::rank, "cannot make a pipe for rank {}: {}", rank, std::strerror(errno));
  Socket errors(pipe[0]), theirs(pipe[1]);
  fcntl(errors.fd(), F_SETFL, O_NONBLOCK);
  const pid_t pid = fork();
  check(pid >= 0, Exit::rank, "cannot start rank {}: {}", rank, std::strerror(errno));
  if (pid == 0) become(rank, theirs.fd(), environment);
  children_.push_back({.rank = rank, .pid = pid, .errors = std::move(errors), .line = {}});
  ++running_;
}

// In the child. The parent may have died before prctl: then nobody would kill us.
void Launch::become(int rank, int errors, const std::vector<std::string>& environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent_) _exit(int(Exit::rank));
  dup2(errors, STDERR_FILENO);
  use_cores(divide_cores(allowed_, rank).cores);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  std::vector<char*> variables;
  for (const std::string& entry : environment) variables.push_back(const_cast<char*>(entry.c_str()));
  variables.push_back(nullptr);
  execve("/proc/self/exe", argv_, variables.data());
  std::cerr << "trainer: cannot start: " << std::strerror(errno) << "\n";
  _exit(int(Exit::rank));
}

int Launch::run() {
  while (running_ > 0) {
    std::vector<pollfd> ready{{signals_.fd(), POLLIN, 0}};
    for (const Child& c : children_) ready.push_back({c.errors.fd(), POLLIN, 0});
    poll(ready.data(), ready.size(), kTickMs);
    for (size_t i = 0; i < children_.size(); ++i)
      if (ready[i + 1].revents) copy_errors(children_[i]);
    if (ready[0].revents) take_signals();
    end_stragglers();
  }
  if (own_failure_) return own_failure_;
  return int(lost_ ? Exit::rank : preempted_ ? Exit::preempted : Exit::done);
}

void Launch::take_signals() {
  signalfd_siginfo signal;
  while (read(signals_.fd(), &signal, sizeof signal) == sizeof signal) {
    if (signal.ssi_signo == SIGCHLD) reap();
    else if (signal.ssi_code != SI_KERNEL)  // the terminal has sent its ^C to the children itself
      for (const Child& c : children_)
        if (c.running) kill(c.pid, int(signal.ssi_signo));
  }
}

void Launch::reap() {
  for (Child& c : children_) {
    int status = 0;
    if (!c.running || waitpid(c.pid, &status, WNOHANG) != c.pid) continue;
    c.running = false;
    --running_;
    copy_errors(c);
    if (!c.line.empty()) print(c, c.line);
    judge(c, status);
  }
}

void Launch::judge(const Child& c, int status) {
  if (WIFSIGNALED(status))
    std::cerr << fmt::format("trainer: {} was killed by signal {} ({})\n", name(c), WTERMSIG(status),
                             strsignal(WTERMSIG(status)));
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : int(Exit::rank);
  if (code == int(Exit::done)) return;
  if (code == int(Exit::preempted)) {
    preempted_ = true;
    return;
  }
  if (!failed_at_) failed_at_ = Clock::now();
  if (code == int(Exit::rank)) lost_ = true;
  else if (!own_failure_) own_failure_ = code;
}

// Only whole lines, so that those of two ranks do not mix.
void Launch::copy_errors(Child& c) {
  char chunk[4096];
  for (;;) {
    const ssize_t n = read(c.errors.fd(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) c.errors = Socket();  // all ends are closed; poll passes over it
    if (n <= 0) return;
    c.line.append(chunk, size_t(n));
    for (size_t end; (end = c.line.find('\n')) != std::string::npos; c.line.erase(0, end + 1))
      print(c, std::string_view(c.line).substr(0, end));
  }
}

void Launch::print(const Child& c, std::string_view line) {
  std::cerr << fmt::format("[rank {}] {}\n", c.rank, line) << std::flush;
}

void Launch::end_stragglers() {
  if (!failed_at_ || Clock::now() - *failed_at_ < kGrace) return;
  for (const Child& c : children_) {
    if (!c.running) continue;
    std::cerr << fmt::format("trainer: {} still ran {} s after another had failed: killed\n", name(c), kGrace.count());
    kill(c.pid, SIGKILL);
  }
  failed_at_ = Clock::now();
}

}  // namespace

bool is_launched() { return std::getenv(kRankVariable) != nullptr; }

int launch_local(int ranks, char** argv) { return Launch(ranks, argv).run(); }

}  // namespace trainer
