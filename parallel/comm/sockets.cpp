#include "parallel/comm/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "core/base/error.h"

namespace trainer {
namespace {

constexpr int kBacklog = 4096;

void set(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

// A host that is gone without a word (power, cable) is noticed within half a minute; a peer that does not read, in 10
// s.
void tune(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  const timeval patience{10, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

// Listens; 0, or errno.
int try_listen(const Socket& socket, const sockaddr* address, socklen_t bytes) {
  set(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.fd(), address, bytes) != 0 || listen(socket.fd(), kBacklog) != 0) return errno;
  return 0;
}

// Connects within `wait`; 0, or errno.
int try_connect(const Socket& socket, const addrinfo& to, std::chrono::milliseconds wait) {
  if (connect(socket.fd(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd ready{socket.fd(), POLLOUT, 0};
  if (poll(&ready, 1, int(wait.count())) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t bytes = sizeof error;
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error;
}

// A connection to one's own port from that very port is what TCP makes of nobody listening there.
bool is_self(const Socket& socket) {
  sockaddr_storage mine{}, theirs{};
  socklen_t a = sizeof mine, b = sizeof theirs;
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&mine), &a);
  getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&theirs), &b);
  return a == b && std::memcmp(&mine, &theirs, a) == 0;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket listen_on(uint16_t port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(port);
  any6.sin6_addr = in6addr_any;
  Socket both(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (both.valid()) set(both.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  int error = both.valid() ? try_listen(both, reinterpret_cast<sockaddr*>(&any6), sizeof any6) : EAFNOSUPPORT;
  if (error == 0) return both;
  if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) {  // a host without IPv6
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    both = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    error = try_listen(both, reinterpret_cast<sockaddr*>(&any), sizeof any);
    if (error == 0) return both;
  }
  check(error == EADDRINUSE, Exit::rank, "cannot listen on port {}: {}", port, std::strerror(error));
  return {};
}

Socket accept_from(const Socket& listener) {
  Socket caller(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (caller.valid()) tune(caller.fd());
  return caller;
}

Call connect_to(const std::string& host, uint16_t port, std::chrono::milliseconds wait) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int unknown = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (unknown) return {{}, fmt::format("host {}: {}", host, gai_strerror(unknown))};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  std::string last;
  for (const addrinfo* to = found; to; to = to->ai_next) {
    Socket socket(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int error = socket.valid() ? try_connect(socket, *to, wait) : errno;
    if (error == 0 && !is_self(socket)) {
      fcntl(socket.fd(), F_SETFL, fcntl(socket.fd(), F_GETFL) & ~O_NONBLOCK);
      tune(socket.fd());
      return {std::move(socket), ""};
    }
    last = std::strerror(error == 0 ? ECONNREFUSED : error);
  }
  return {{}, fmt::format("{}:{}: {}", host, port, last)};
}

std::pair<Socket, Socket> socket_pair() {
  int fds[2];
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, Exit::rank, "cannot make a socket pair: {}",
        std::strerror(errno));
  return {Socket(fds[0]), Socket(fds[1])};
}

std::string peer_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  char text[NI_MAXHOST] = "127.0.0.1";
  if (getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0 && address.ss_family != AF_UNIX)
    getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  const std::string name = text, mapped = "::ffff:";
  return name.starts_with(mapped) ? name.substr(mapped.size()) : name;
}

bool wait_readable(const Socket& socket, std::chrono::milliseconds wait) {
  pollfd ready{socket.fd(), POLLIN, 0};
  return poll(&ready, 1, int(wait.count())) > 0;
}

}  // namespace trainer
