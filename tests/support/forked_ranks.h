// Ranks as processes: one may be killed, and the others hear of it.
#pragma once
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "io/votes.h"

namespace trainer::test {

// One end of a stream of messages. A peer that is gone is an empty answer.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  void say(std::string_view text) const {
    const uint64_t size = text.size();
    put(&size, sizeof size);
    put(text.data(), text.size());
  }
  bool hear(std::string& text) const {
    uint64_t size = 0;
    if (!get(&size, sizeof size)) return false;
    text.resize(size);
    return get(text.data(), size);
  }
  int fd() const { return fd_; }

 private:
  void put(const void* data, size_t bytes) const {
    for (auto at = static_cast<const char*>(data); bytes > 0;) {
      const ssize_t n = send(fd_, at, bytes, MSG_NOSIGNAL);
      if (n <= 0) return;  // the next hear() says so
      at += n;
      bytes -= size_t(n);
    }
  }
  bool get(void* data, size_t bytes) const {
    for (auto at = static_cast<char*>(data); bytes > 0;) {
      const ssize_t n = recv(fd_, at, bytes, 0);
      if (n <= 0) return false;
      at += n;
      bytes -= size_t(n);
    }
    return true;
  }
  int fd_;
};

inline Votes votes_over(const Line& line, int rank, int size) {
  return {rank, size, [line, size](std::string_view mine) {
            line.say(mine);
            std::vector<std::string> all(static_cast<size_t>(size));
            for (std::string& text : all) check(line.hear(text), Exit::rank, "a rank is gone");
            return all;
          }};
}

// Hands on what all said, round by round, until one is gone; then none hears anything more.
inline void serve(const std::vector<Line>& lines) {
  std::vector<std::string> said(lines.size());
  for (bool all_there = true; all_there;) {
    for (size_t r = 0; r < lines.size() && all_there; ++r) all_there = lines[r].hear(said[r]);
    if (!all_there) break;
    for (const Line& line : lines)
      for (const std::string& text : said) line.say(text);
  }
  for (const Line& line : lines) shutdown(line.fd(), SHUT_RDWR);
}

// Runs `work` in `size` processes and returns how each ended, as waitpid says it; an Error is its exit code.
// REQUIRES: no other thread runs.
inline std::vector<int> fork_ranks(int size, const std::function<void(const Votes&)>& work) {
  std::vector<Line> lines;
  std::vector<pid_t> children;
  for (int r = 0; r < size; ++r) {
    int ends[2];
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, Exit::rank, "no socket");
    const pid_t child = fork();
    if (child == 0) {
      for (const Line& line : lines) close(line.fd());
      close(ends[0]);
      try {
        work(votes_over(Line(ends[1]), r, size));
      } catch (const Error& e) { _exit(int(e.code())); }
      _exit(0);
    }
    close(ends[1]);
    lines.emplace_back(ends[0]);
    children.push_back(child);
  }
  serve(lines);
  std::vector<int> statuses(children.size());
  for (size_t r = 0; r < children.size(); ++r) waitpid(children[r], &statuses[r], 0);
  for (const Line& line : lines) close(line.fd());
  return statuses;
}

}  // namespace trainer::test
