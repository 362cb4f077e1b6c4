// TCP sockets: owned, closed on exec, without delay, and watched by keepalive.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace trainer {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Listens on `port` of every address of this host (IPv4, and IPv6 where there is one). Not valid: the port is taken.
// Every other reason is an Error(rank).
Socket listen_on(uint16_t port);

// The next caller; not valid: nobody waits.
Socket accept_from(const Socket& listener);

struct Call {
  Socket socket;      // not valid: nobody answered
  std::string error;  // why
};
// `wait` bounds each address that `host` has.
Call connect_to(const std::string& host, uint16_t port, std::chrono::milliseconds wait);

// Two connected ends within this process.
std::pair<Socket, Socket> socket_pair();

// The address of the other end, as text; "127.0.0.1" within a process.
std::string peer_address(const Socket&);

// Until something can be read, or the other end has closed. False: time is up.
bool wait_readable(const Socket&, std::chrono::milliseconds);

}  // namespace trainer
