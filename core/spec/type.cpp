#include "core/spec/type.h"

#include <algorithm>
#include <cmath>

namespace trainer {
namespace {

using nlohmann::json;

constexpr const char* kNumberPattern = "^[0-9.]+(e[0-9]+)?(k|K|M|G|B|T|Ki|Mi|Gi|Ti)?";

// A number in quotes is a string; a number with a unit may stand in quotes, as JSON has it.
std::optional<Quantity> quantity_of(const Node& node) {
  if (node.kind != NodeKind::scalar) return std::nullopt;
  auto q = parse_quantity(node.text);
  if (q && node.quoted && q->bare) return std::nullopt;
  return q;
}

std::string number_text(double x) { return json(x).dump(); }

std::string range_text(const RealRange& r) {
  if (std::isinf(r.high)) return fmt::format("{} {}", r.open_low ? ">" : ">=", number_text(r.low));
  return fmt::format("{} {} x {} {}", number_text(r.low),
                     r.open_low ? "<" : "<=", r.open_high ? "<" : "<=", number_text(r.high));
}

std::string integer_text(const IntegerRange& range, Unit unit) {
  const std::string kind = unit == Unit::none ? "integer" : std::string(name_of(unit));
  return range.high == IntegerRange{}.high ? fmt::format("{} >= {}", kind, range.low)
                                           : fmt::format("{} {} .. {}", kind, range.low, range.high);
}

json integer_schema(const IntegerRange& range, Unit unit) {
  json number = {{"type", "integer"}, {"minimum", range.low}};
  if (range.high != IntegerRange{}.high) number["maximum"] = range.high;
  std::string pattern = kNumberPattern;
  if (unit != Unit::none) {
    const std::string_view plural = name_of(unit);
    pattern += fmt::format("( {}?)?", plural);
  }
  return {{"anyOf", {number, json{{"type", "string"}, {"pattern", pattern + "$"}}}}};
}

bool read_integer(const Node& node, int64_t& value, const Reading& reading, const IntegerRange& range, Unit unit) {
  const std::string wanted = integer_text(range, unit);
  const auto q = quantity_of(node);
  if (!q || !q->whole) {
    const bool quoted = node.kind == NodeKind::scalar && node.quoted && parse_quantity(node.text);
    reading.wrong(node.mark, wanted, describe(node),
                  quoted ? "remove the quotes" : "write a whole number, such as 4096 or 4Ki");
    return false;
  }
  if (q->unit != Unit::none && q->unit != unit) {
    const std::string advice =
        unit == Unit::none ? "write a number without a unit" : fmt::format("count in {}", name_of(unit));
    reading.wrong(node.mark, wanted, describe(node), advice);
    return false;
  }
  if (*q->whole < range.low || *q->whole > range.high) {
    const int64_t legal = std::clamp(*q->whole, range.low, range.high);
    reading.wrong(node.mark, wanted, describe(node), fmt::format("the nearest legal value is {}", legal));
    return false;
  }
  value = *q->whole;
  return true;
}

bool inside(double x, const RealRange& r) {
  return (r.open_low ? x > r.low : x >= r.low) && (r.open_high ? x < r.high : x <= r.high);
}

}  // namespace

std::string join(const std::vector<std::string>& words, const char* separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

Type<int64_t> integer(IntegerRange range, Unit unit) {
  return {.read = [=](const Node& node, int64_t& value,
                      const Reading& reading) { return read_integer(node, value, reading, range, unit); },
          .write = [](const int64_t& value) { return json(value); },
          .schema = integer_schema(range, unit),
          .legal = integer_text(range, unit)};
}

Type<double> real(RealRange range) {
  json schema = {{"type", "number"}, {range.open_low ? "exclusiveMinimum" : "minimum", range.low}};
  if (!std::isinf(range.high)) schema[range.open_high ? "exclusiveMaximum" : "maximum"] = range.high;
  const std::string legal = "number " + range_text(range);
  return {.read =
              [=](const Node& node, double& value, const Reading& reading) {
                const auto q = quantity_of(node);
                if (!q || q->unit != Unit::none) {
                  reading.wrong(node.mark, legal, describe(node),
                                "write a finite number without a unit, such as 3.0e-4");
                  return false;
                }
                if (!inside(q->real, range)) {
                  const double nearest_bound = std::clamp(q->real, range.low, range.high);
                  const bool open = !inside(nearest_bound, range);
                  reading.wrong(node.mark, legal, describe(node),
                                open ? fmt::format("{} itself is not legal", number_text(nearest_bound))
                                     : fmt::format("the nearest legal value is {}", number_text(nearest_bound)));
                  return false;
                }
                value = q->real;
                return true;
              },
          .write = [](const double& value) { return json(value); },
          .schema = std::move(schema),
          .legal = legal};
}

Type<double> seconds() {
  return {.read =
              [](const Node& node, double& value, const Reading& reading) {
                const auto q = quantity_of(node);
                if (!q || q->unit != Unit::seconds || q->real <= 0) {
                  const bool no_unit = q && q->unit == Unit::none;
                  reading.wrong(node.mark, "a time > 0s", describe(node),
                                no_unit ? fmt::format("add the unit: {}s", node.text) : "write 200ms, 5s or 2min");
                  return false;
                }
                value = q->real;
                return true;
              },
          .write = [](const double& value) { return json(number_text(value) + "s"); },
          .schema = {{"type", "string"}, {"pattern", "^[0-9.]+(e-?[0-9]+)? ?(us|ms|s|min|h|d)$"}},
          .legal = "time, such as 200ms or 5s"};
}

Type<bool> boolean() {
  return {.read =
              [](const Node& node, bool& value, const Reading& reading) {
                const bool plain = node.kind == NodeKind::scalar && !node.quoted;
                if (!plain || (node.text != "true" && node.text != "false")) {
                  reading.wrong(node.mark, "true | false", describe(node), "write true or false");
                  return false;
                }
                value = node.text == "true";
                return true;
              },
          .write = [](const bool& value) { return json(value); },
          .schema = {{"type", "boolean"}},
          .legal = "true | false"};
}

Type<std::string> text() {
  return {.read =
              [](const Node& node, std::string& value, const Reading& reading) {
                if (node.kind != NodeKind::scalar || node.text.empty()) {
                  reading.wrong(node.mark, "a name or path", describe(node), "write one non-empty string");
                  return false;
                }
                value = node.text;
                return true;
              },
          .write = [](const std::string& value) { return json(value); },
          .schema = {{"type", "string"}, {"minLength", 1}},
          .legal = "name or path"};
}

std::string read_word(const Node& node, const Words& words, const Reading& reading) {
  const auto has = [&](const std::vector<std::string>& list) {
    return node.kind == NodeKind::scalar && std::find(list.begin(), list.end(), node.text) != list.end();
  };
  const std::string wanted = join(words.built, " | ");
  if (has(words.unbuilt)) {
    reading.unbuilt.push_back({reading.file, node.mark.line, node.mark.column, reading.key, wanted, node.text,
                               fmt::format("{} is not built yet", node.text)});
  } else if (!has(words.built)) {
    const std::string near = node.kind == NodeKind::scalar ? nearest(node.text, words.built) : "";
    reading.wrong(node.mark, wanted, describe(node),
                  near.empty()
                      ? fmt::format("write {}{}", words.built.size() == 1 ? "" : "one of ", join(words.built, ", "))
                      : fmt::format("did you mean {}?", near));
    return "";
  }
  return node.text;
}

Type<std::string> word(std::vector<std::string> words) {
  std::vector<Choice<std::string>> choices;
  for (const std::string& w : words) choices.push_back({w, w});
  return one_of(std::move(choices));
}

Type<BatchSize> batch() {
  const IntegerRange range{.low = 1};
  json schema = integer_schema(range, Unit::tokens);
  schema["anyOf"].push_back(integer_schema(range, Unit::sequences)["anyOf"][1]);
  return {
      .read =
          [=](const Node& node, BatchSize& value, const Reading& reading) {
            const auto q = quantity_of(node);
            const bool in_tokens = q && q->unit == Unit::tokens;
            int64_t count = 0;
            if (!read_integer(node, count, reading, range, in_tokens ? Unit::tokens : Unit::sequences)) return false;
            value = {.count = count, .in_tokens = in_tokens};
            return true;
          },
      .write = [](const BatchSize& b) { return b.in_tokens ? json(fmt::format("{} tokens", b.count)) : json(b.count); },
      .schema = std::move(schema),
      .legal = "sequences >= 1, or a number of tokens, such as 4Mi tokens"};
}

Type<RecomputeSpec> recompute() {
  const auto kind = one_of<RecomputeKind>(
      {{"none", RecomputeKind::none}, {"selective", RecomputeKind::selective}, {"full", RecomputeKind::full}});
  const auto every = integer({.low = 1, .high = 10'000});
  const json map = {{"type", "object"},
                    {"properties", {{"every", every.schema}}},
                    {"required", {"every"}},
                    {"additionalProperties", false}};
  return {.read =
              [=](const Node& node, RecomputeSpec& value, const Reading& reading) {
                RecomputeSpec spec;
                if (node.kind != NodeKind::map) {
                  if (!kind.read(node, spec.kind, reading)) return false;
                  value = spec;
                  return true;
                }
                if (node.entries.size() != 1 || node.entries[0].key != "every") {
                  reading.wrong(node.entries.empty() ? node.mark : node.entries[0].mark, "{every: k}", "another map",
                                "write none, selective, full or {every: 2}");
                  return false;
                }
                spec.kind = RecomputeKind::every;
                if (!every.read(node.entries[0].value, spec.every, reading.inside(".every"))) return false;
                value = spec;
                return true;
              },
          .write =
              [=](const RecomputeSpec& value) {
                return value.kind == RecomputeKind::every ? json{{"every", value.every}} : kind.write(value.kind);
              },
          .schema = {{"anyOf", {kind.schema, map}}},
          .legal = kind.legal + " | {every: k}"};
}

}  // namespace trainer
