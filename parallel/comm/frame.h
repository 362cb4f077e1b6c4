// What travels on a control connection: frames of a kind and a body. Same byte order at both ends.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/sockets.h"

namespace trainer {

enum class FrameKind : uint32_t {
  hello,     // rank -> coordinator: who I am
  stranger,  // back: you belong to another job
  admitted,  // back: rank 0's host and pid; the others may still be missing
  welcome,   // to all: everybody is here; the peers
  part,      // rank -> coordinator: its share of an all_gather
  gathered,  // to all: the shares by rank
  leave,     // rank -> coordinator: I end in order (empty), or why I give up
  failure,   // to all: who died or gave up
  over,      // to all: the coordinator ends in order
};

struct Frame {
  FrameKind kind;
  std::string body;
};

// Waits until the kernel has taken all. False: the connection is broken, or the other end has not read for 10 s.
bool send_frame(const Socket&, FrameKind, std::string_view body);

// Puts frames together from what arrives.
class FrameReader {
 public:
  // Takes what has arrived, without waiting. False: nothing more will come (closed, reset, or these are no frames).
  bool receive(const Socket&);
  std::optional<Frame> next();

 private:
  std::string input_;
};

// Several texts in one body.
std::string pack_texts(const std::vector<std::string>&);
std::optional<std::vector<std::string>> unpack_texts(std::string_view body);

}  // namespace trainer
