// A YAML document as a tree with positions. Stricter than YAML: duplicate keys stay visible, and anchors, aliases,
// tags, several documents, deep nesting and huge files are refused.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trainer {

inline constexpr size_t kMaxSpecBytes = 128 * 1024;
inline constexpr int kMaxSpecDepth = 12;

struct Mark {  // both count from 1
  int line = 1, column = 1;
  bool operator==(const Mark&) const = default;
};

enum class NodeKind : uint8_t { null, scalar, list, map };
struct Entry;
struct Node {
  NodeKind kind = NodeKind::null;
  bool quoted = false;  // a scalar in quotes is a string, whatever it looks like
  Mark mark = {};
  std::string text = {};            // of a scalar
  std::vector<Node> items = {};     // of a list
  std::vector<Entry> entries = {};  // of a map, in the file's order, duplicates included
};
struct Entry {
  std::string key = {};
  Mark mark = {};
  Node value = {};
};

struct SyntaxError {
  Mark mark;
  std::string wanted, found, advice;
};

// An empty document is a null node. Throws SyntaxError.
Node parse_yaml(const std::string& text);
Node to_node(const nlohmann::json&);

// A node as a message shows it: `abc`, "abc" (a string), a list, a map, nothing.
std::string describe(const Node&);

}  // namespace trainer
