// The meeting point of a world, in rank 0's process: admits the ranks, hands on what they say, and tells all of the
// first that died or gave up. A thread of its own owns all of its state.
#pragma once
#include <chrono>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/rendezvous.h"

namespace trainer {

// What a rank says of itself when it comes.
struct Hello {
  std::string job, restart, world, rank, spec, build, host, pid, machine;
};
std::string pack(const Hello&);
std::optional<Hello> unpack_hello(std::string_view body);

class Coordinator {
 public:
  // `rank0` is connected to this process's own Rendezvous.
  Coordinator(Socket listener, Socket rank0, const RendezvousOptions&);
  // Waits until rank 0's connection has closed and the others have gone or been told, 5 s at most.
  ~Coordinator();

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    Socket socket;
    FrameReader reader;
    Clock::time_point since;
    bool own = false;  // to this process's rank 0
    int rank = -1;     // once admitted
    bool closed = false;
  };
  struct Member {
    std::string host, pid, machine, address;
    Connection* connection;  // null: closed
    bool left = false;
  };

  void serve();
  bool finished() const;
  void wait_and_read();
  void accept_all();
  void read(Connection&);
  void handle(Connection&, const Frame&);
  void admit(Connection&, const Hello&);
  void welcome_all();
  void check_exchange();
  void check_time();
  void end(Connection&);
  void fail_all(const std::string& why);
  void send_all(FrameKind, const std::string& body);
  std::string refusal(const Hello&) const;                   // empty: none
  std::string name(int rank) const;                          // "rank 3 (host n2, pid 77)"
  std::string missing(const std::vector<bool>& here) const;  // "ranks 3, 5 of 8"

  const RendezvousOptions options_;
  Socket listener_;
  std::list<Connection> connections_;
  std::vector<std::optional<Member>> members_;     // by rank
  std::vector<std::optional<std::string>> parts_;  // by rank, of the all_gather under way
  const Clock::time_point start_ = Clock::now();
  Clock::time_point exchange_start_{};  // its first share came
  std::optional<Clock::time_point> rank0_gone_;
  int came_ = 0;  // said hello, admitted or not
  bool welcomed_ = false;
  std::string failure_;

  std::thread thread_;
};

}  // namespace trainer
