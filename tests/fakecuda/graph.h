// What a capture leaves, and what replays it.
#pragma once
#include <memory>
#include <vector>

#include "tests/fakecuda/stream.h"

namespace fake {

// A branch is a stream that took part: its nodes come one after the other.
struct Node {
  Op op;
  std::vector<size_t> after;  // nodes
  size_t branch = 0;
};
struct Graph {
  std::vector<Node> nodes;
  size_t branches = 0;
};

}  // namespace fake
