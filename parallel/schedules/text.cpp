#include "parallel/schedules/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/base/error.h"

namespace trainer {
namespace {

constexpr std::string_view kSpaces = " \t\r";

int most(const Orders& orders, int16_t Action::*index) {
  int most = -1;
  for (const auto& order : orders)
    for (const Action& a : order) most = std::max<int>(most, a.*index);
  return most + 1;
}

class OrderReader {
 public:
  explicit OrderReader(std::string_view name) : name_(name) {}

  void line(std::string_view text) {
    ++line_;
    text = text.substr(0, text.find('#'));
    std::vector<Action> order;
    std::vector<std::pair<int, int>> marks;
    bool directive = false;
    for (size_t at = text.find_first_not_of(kSpaces); at != text.npos; at = text.find_first_not_of(kSpaces, at)) {
      const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
      column_ = int(at) + 1;
      const std::string_view word = text.substr(at, end - at);
      at = end;
      if (directive) placement(word);
      else if (word == "placement" && order.empty() && read_.orders.empty()) directive = true;
      else {
        order.push_back(action(word));
        marks.emplace_back(line_, column_);
      }
    }
    check(!directive || placed_, Exit::spec, "{}:{}:{}: placement of what kind? Wanted looped or vee", name_, line_,
          column_);
    if (order.empty()) return;
    read_.orders.push_back(std::move(order));
    read_.marks.push_back(std::move(marks));
  }
  WrittenOrders take() {
    check(!read_.orders.empty(), Exit::spec, "{}: no stage has an action: wanted a line of actions per stage", name_);
    return std::move(read_);
  }

 private:
  void placement(std::string_view word) {
    check(!placed_ && (word == "looped" || word == "vee"), Exit::spec,
          "{}:{}:{}: wanted looped or vee, once, found `{}`", name_, line_, column_, word);
    placed_ = true;
    read_.placement = word == "vee" ? Placement::vee : Placement::looped;
  }
  // All of `text` as an index, or -1.
  static int index(std::string_view text) {
    int value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole && value <= std::numeric_limits<int16_t>::max() ? value : -1;
  }
  Action action(std::string_view word) const {
    const std::string_view kinds = "FBIW";
    const size_t point = word.find('.');
    const int microbatch = index(word.substr(1, point == word.npos ? word.npos : point - 1));
    const int chunk = point == word.npos ? 0 : index(word.substr(point + 1));
    check(kinds.find(word[0]) != kinds.npos && microbatch >= 0 && chunk >= 0, Exit::spec,
          "{}:{}:{}: wanted F, B, I or W with a micro-batch and a chunk, as in F3.1, found `{}`", name_, line_, column_,
          word);
    const Verb verb = word[0] == 'F' ? Verb::forward : word[0] == 'W' ? Verb::backward_weight : Verb::backward_input;
    return {verb, int16_t(microbatch), int16_t(chunk), word[0] == 'B'};
  }

  const std::string_view name_;
  WrittenOrders read_;
  int line_ = 0, column_ = 0;
  bool placed_ = false;
};

}  // namespace

int WrittenOrders::chunks() const { return most(orders, &Action::chunk); }
int WrittenOrders::microbatches() const { return most(orders, &Action::microbatch); }

std::string to_text(const Action& a) {
  const char kind = a.verb == Verb::forward ? 'F' : a.verb == Verb::backward_weight ? 'W' : a.whole ? 'B' : 'I';
  return fmt::format("{}{}.{}", kind, a.microbatch, a.chunk);
}

std::string to_text(const Orders& orders, Placement placement) {
  std::string text = placement == Placement::vee ? "placement vee\n" : "placement looped\n";
  for (const auto& order : orders) {
    for (size_t k = 0; k < order.size(); ++k) text += (k == 0 ? "" : " ") + to_text(order[k]);
    text += '\n';
  }
  return text;
}

WrittenOrders parse_orders(std::string_view text, std::string_view name) {
  OrderReader reader(name);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    reader.line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.take();
}

}  // namespace trainer
