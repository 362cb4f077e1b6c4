#include "core/spec/node.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace trainer {
namespace {

Mark to_mark(const YAML::Mark& m) { return {m.line + 1, m.column + 1}; }

[[noreturn]] void refuse(const YAML::Mark& mark, std::string wanted, std::string found, std::string advice) {
  throw SyntaxError{to_mark(mark), std::move(wanted), std::move(found), std::move(advice)};
}

// Containers under construction live on a stack and move into their parent when they end.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& text) : text_(text) {}
  Node root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    place({.mark = to_mark(mark)});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "a value", "an alias (*)", "write the value out: a run spec has no anchors and aliases");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    refuse_open_quote(mark);
    place({.kind = NodeKind::scalar, .quoted = tag == "!", .mark = to_mark(mark), .text = value});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(NodeKind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(NodeKind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Node node;
    bool has_key = false;
  };
  const std::string& text_;
  std::vector<Open> stack_;

  // The library takes the end of the file for a closing quote.
  void refuse_open_quote(const YAML::Mark& mark) const {
    const size_t begin = size_t(std::max(mark.pos, 0));
    const char quote = begin < text_.size() ? text_[begin] : ' ';
    if (quote != '"' && quote != '\'') return;
    for (size_t i = begin + 1; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\') ++i;
      else if (text_[i] == quote) return;
    }
    refuse(mark, "a closing quote", "the end of the file", "close the quote");
  }

  static void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0)
      refuse(mark, "a value", "an anchor (&)", "write the value out: a run spec has no anchors and aliases");
  }
  static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "a value", "the tag " + tag, "leave the tag out");
  }
  void open(NodeKind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (stack_.size() >= kMaxSpecDepth)
      refuse(mark, fmt::format("at most {} levels", kMaxSpecDepth), "deeper nesting", "a run spec has four levels");
    stack_.push_back({{.kind = kind, .mark = to_mark(mark)}});
  }
  void close() {
    Node done = std::move(stack_.back().node);
    stack_.pop_back();
    place(std::move(done));
  }
  void place(Node value) {
    if (stack_.empty()) {
      root = std::move(value);
      return;
    }
    auto& [parent, has_key] = stack_.back();
    if (parent.kind == NodeKind::list) {
      parent.items.push_back(std::move(value));
    } else if (has_key) {
      Entry& entry = parent.entries.back();
      if (value.kind == NodeKind::null) value.mark = entry.mark;  // the library points at the next token
      entry.value = std::move(value);
      has_key = false;
    } else {
      if (value.kind != NodeKind::scalar)
        throw SyntaxError{value.mark, "a key", describe(value), "write `key: value` with a plain word as the key"};
      parent.entries.push_back({.key = std::move(value.text), .mark = value.mark});
      has_key = true;
    }
  }
};

}  // namespace

Node parse_yaml(const std::string& text) {
  if (text.size() > kMaxSpecBytes)
    throw SyntaxError{{}, fmt::format("at most {} KiB", kMaxSpecBytes / 1024), "a larger file", "is this a run spec?"};
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    throw SyntaxError{{}, "text", fmt::format("a zero byte at offset {}", zero), "is this a run spec?"};
  std::istringstream in(text);
  try {
    YAML::Parser parser(in);
    TreeBuilder tree(text), second(text);
    parser.HandleNextDocument(tree);
    if (parser.HandleNextDocument(second))
      throw SyntaxError{second.root.mark, "one document", "a second one", "remove the `---` between them"};
    return std::move(tree.root);
  } catch (const YAML::Exception& e) {
    throw SyntaxError{to_mark(e.mark), "YAML", e.msg, "correct the syntax here or just above"};
  }
}

Node to_node(const nlohmann::json& value) {
  Node node;
  if (value.is_object()) {
    node.kind = NodeKind::map;
    for (const auto& [key, child] : value.items()) node.entries.push_back({.key = key, .value = to_node(child)});
  } else if (value.is_array()) {
    node.kind = NodeKind::list;
    for (const auto& child : value) node.items.push_back(to_node(child));
  } else if (!value.is_null()) {
    node.kind = NodeKind::scalar;
    node.quoted = value.is_string();
    node.text = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return node;
}

std::string describe(const Node& node) {
  switch (node.kind) {
    case NodeKind::null: return "nothing";
    case NodeKind::list: return "a list";
    case NodeKind::map: return "a map";
    case NodeKind::scalar: break;
  }
  const std::string text = node.text.size() > 60 ? node.text.substr(0, 57) + "..." : node.text;
  return node.quoted ? fmt::format("\"{}\" (a string)", text) : text;
}

}  // namespace trainer
