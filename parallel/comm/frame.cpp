#include "parallel/comm/frame.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace trainer {
namespace {

struct Header {
  uint32_t magic;
  FrameKind kind;
  uint64_t bytes;
};
constexpr uint32_t kMagic = 0x31525254;  // "TRR1"; the digit is the version
constexpr uint64_t kMostBytes = uint64_t(1) << 28;

bool send_all(const Socket& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(size_t(n));
  }
  return true;
}

bool is_frame(const Header& header) {
  return header.magic == kMagic && header.kind <= FrameKind::over && header.bytes <= kMostBytes;
}

}  // namespace

bool send_frame(const Socket& socket, FrameKind kind, std::string_view body) {
  const Header header{kMagic, kind, body.size()};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += body;
  return send_all(socket, bytes);
}

bool FrameReader::receive(const Socket& socket) {
  char chunk[65536];
  for (;;) {
    const ssize_t n = recv(socket.fd(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (n == 0) return false;
    input_.append(chunk, size_t(n));
    Header header;
    if (input_.size() < sizeof header) continue;
    std::memcpy(&header, input_.data(), sizeof header);
    if (!is_frame(header)) return false;
  }
}

std::optional<Frame> FrameReader::next() {
  Header header;
  if (input_.size() < sizeof header) return {};
  std::memcpy(&header, input_.data(), sizeof header);
  if (!is_frame(header) || input_.size() - sizeof header < header.bytes) return {};
  Frame frame{header.kind, input_.substr(sizeof header, header.bytes)};
  input_.erase(0, sizeof header + header.bytes);
  return frame;
}

std::string pack_texts(const std::vector<std::string>& texts) {
  std::string body;
  for (const std::string& text : texts) {
    const uint64_t bytes = text.size();
    body.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(text);
  }
  return body;
}

std::optional<std::vector<std::string>> unpack_texts(std::string_view body) {
  std::vector<std::string> texts;
  while (!body.empty()) {
    uint64_t bytes;
    if (body.size() < sizeof bytes) return {};
    std::memcpy(&bytes, body.data(), sizeof bytes);
    body.remove_prefix(sizeof bytes);
    if (body.size() < bytes) return {};
    texts.emplace_back(body.substr(0, bytes));
    body.remove_prefix(bytes);
  }
  return texts;
}

}  // namespace trainer
