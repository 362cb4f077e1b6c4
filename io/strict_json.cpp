#include "io/strict_json.h"

#include <set>
#include <vector>

namespace trainer {
namespace {

constexpr int kMaxDepth = 16;

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, const std::string& path, Exit code) {
  using nlohmann::json;
  std::vector<std::set<std::string>> keys;  // of each open object
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    check(depth < kMaxDepth, code, "{}: JSON is nested deeper than {}", path, kMaxDepth);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key)
      check(keys.back().insert(value.get<std::string>()).second, code, "{}: duplicate key '{}'", path,
            value.get<std::string>());
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& e) { fail(code, "{}: not valid JSON: {}", path, e.what()); }
}

}  // namespace trainer
