#include "app/host_list.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "core/base/error.h"

namespace trainer {
namespace {

constexpr size_t kMostHosts = 65536;  // Slurm's own limit of a range

// `wanted` names the form in the message.
[[noreturn]] void refuse(std::string_view list, std::string_view wanted) {
  fail(Exit::usage, "host list '{}': {}", list, wanted);
}

uint64_t parse_number(std::string_view list, std::string_view digits) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    refuse(list, fmt::format("wanted a number in brackets, found '{}'", digits));
  return n;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// "001-003,007" -> 001 002 003 007
std::vector<std::string> expand_group(std::string_view list, std::string_view group) {
  std::vector<std::string> numbers;
  for (const std::string_view range : split(group, ',')) {
    const size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const uint64_t first = parse_number(list, low);
    const uint64_t last = dash == range.npos ? first : parse_number(list, range.substr(dash + 1));
    if (last < first) refuse(list, fmt::format("range '{}' runs backwards", range));
    if (last - first >= kMostHosts) refuse(list, fmt::format("range '{}' has more than {} hosts", range, kMostHosts));
    for (uint64_t n = first; n <= last; ++n) numbers.push_back(fmt::format("{:0{}}", n, low.size()));
  }
  return numbers;
}

// One entry: fixed texts and bracket groups in turn.
struct Entry {
  std::vector<std::string_view> texts;           // texts[i] stands before groups[i]
  std::vector<std::vector<std::string>> groups;  // of numbers
};

void check_text(std::string_view list, std::string_view text) {
  const bool fine = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.';
  });
  if (!fine) refuse(list, fmt::format("'{}' is no part of a host name", text));
}

Entry parse_entry(std::string_view list, std::string_view entry) {
  Entry parsed;
  while (!entry.empty()) {
    const size_t open = std::min(entry.find('['), entry.size());
    check_text(list, entry.substr(0, open));
    if (open == entry.size() && !parsed.groups.empty()) refuse(list, fmt::format("'{}' stands after a bracket", entry));
    parsed.texts.push_back(entry.substr(0, open));
    if (open == entry.size()) break;
    const size_t close = entry.find(']', open);
    if (close == entry.npos) refuse(list, "a bracket is not closed");
    parsed.groups.push_back(expand_group(list, entry.substr(open + 1, close - open - 1)));
    entry.remove_prefix(close + 1);
  }
  return parsed;
}

void expand_entry(std::string_view list, const Entry& entry, std::vector<std::string>& hosts) {
  const size_t groups = entry.groups.size();
  if (groups == 0) return hosts.emplace_back(entry.texts.at(0)), void();
  size_t count = 1;
  for (const auto& group : entry.groups) {
    count *= group.size();
    if (count > kMostHosts) refuse(list, fmt::format("more than {} hosts", kMostHosts));
  }
  for (size_t i = 0; i < count; ++i) {
    std::vector<size_t> at(groups);
    size_t rest = i;
    for (size_t turn = 0; turn < groups; ++turn) {  // the last group first, then from the first on
      const size_t g = turn == 0 ? groups - 1 : turn - 1;
      at[g] = rest % entry.groups[g].size();
      rest /= entry.groups[g].size();
    }
    std::string& host = hosts.emplace_back();
    for (size_t g = 0; g < groups; ++g) host.append(entry.texts[g]).append(entry.groups[g][at[g]]);
  }
}

// At the commas outside brackets.
std::vector<std::string_view> split_entries(std::string_view list) {
  std::vector<std::string_view> entries;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && !inside)) {
      entries.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    } else if (list[i] == '[') {
      inside = true;
    } else if (list[i] == ']') {
      inside = false;
    }
  }
  return entries;
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view text) {
  std::vector<std::string> hosts;
  for (const std::string_view entry : split_entries(text)) {
    if (entry.empty()) refuse(text, "a name is empty");
    expand_entry(text, parse_entry(text, entry), hosts);
  }
  return hosts;
}

std::vector<int> expand_task_counts(std::string_view text) {
  const auto refuse_counts = [&](std::string_view part) {
    fail(Exit::usage, "task counts '{}': wanted numbers as in 2(x3),1, found '{}'", text, part);
  };
  const auto number = [&](std::string_view digits, std::string_view part) {
    int n = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (error != std::errc() || end != digits.data() + digits.size() || n < 1 || n > int(kMostHosts))
      refuse_counts(part);
    return n;
  };
  std::vector<int> counts;
  for (const std::string_view part : split(text, ',')) {
    const size_t open = part.find("(x");
    if (open != part.npos && !part.ends_with(')')) refuse_counts(part);
    const int times = open == part.npos ? 1 : number(part.substr(open + 2, part.size() - open - 3), part);
    counts.insert(counts.end(), size_t(times), number(part.substr(0, open), part));
  }
  return counts;
}

}  // namespace trainer
