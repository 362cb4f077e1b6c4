#include "core/spec/quantity.h"

#include <charconv>
#include <cmath>

namespace trainer {
namespace {

struct Scale {
  std::string_view name;
  double factor;
  Unit unit;
};
constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi;
constexpr Scale kGlued[] = {
    {"", 1, Unit::none},         {"k", 1e3, Unit::none},    {"K", 1e3, Unit::none},     {"M", 1e6, Unit::none},
    {"G", 1e9, Unit::none},      {"B", 1e9, Unit::none},    {"T", 1e12, Unit::none},    {"Ki", kKi, Unit::none},
    {"Mi", kMi, Unit::none},     {"Gi", kGi, Unit::none},   {"Ti", kTi, Unit::none},    {"us", 1e-6, Unit::seconds},
    {"ms", 1e-3, Unit::seconds}, {"s", 1, Unit::seconds},   {"min", 60, Unit::seconds}, {"h", 3600, Unit::seconds},
    {"d", 86400, Unit::seconds}, {"kB", 1e3, Unit::bytes},  {"KB", 1e3, Unit::bytes},   {"MB", 1e6, Unit::bytes},
    {"GB", 1e9, Unit::bytes},    {"TB", 1e12, Unit::bytes}, {"KiB", kKi, Unit::bytes},  {"MiB", kMi, Unit::bytes},
    {"GiB", kGi, Unit::bytes},   {"TiB", kTi, Unit::bytes},
};
constexpr Scale kWords[] = {{"", 1, Unit::none},
                            {"step", 1, Unit::steps},
                            {"steps", 1, Unit::steps},
                            {"token", 1, Unit::tokens},
                            {"tokens", 1, Unit::tokens},
                            {"sequence", 1, Unit::sequences},
                            {"sequences", 1, Unit::sequences},
                            {"bytes", 1, Unit::bytes}};

template <size_t N>
const Scale* find(const Scale (&table)[N], std::string_view name) {
  for (const Scale& s : table)
    if (s.name == name) return &s;
  return nullptr;
}

std::string_view trim(std::string_view s) {
  const size_t first = s.find_first_not_of(' ');
  return first == s.npos ? std::string_view{} : s.substr(first, s.find_last_not_of(' ') + 1 - first);
}

// Digits alone times a whole factor stay exact to 63 bits; the rest is exact to 53.
std::optional<int64_t> whole_value(std::string_view digits, double factor, double real) {
  int64_t n = 0, product = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (end == digits.data() + digits.size() && error == std::errc{} && factor >= 1)
    return __builtin_mul_overflow(n, int64_t(factor), &product) ? std::nullopt : std::optional(product);
  if (std::abs(real) < 9007199254740992.0 && real == std::trunc(real)) return int64_t(real);
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Unit unit) {
  constexpr std::string_view kNames[] = {"none", "steps", "tokens", "sequences", "seconds", "bytes"};
  return kNames[size_t(unit)];
}

std::optional<Quantity> parse_quantity(std::string_view text) {
  text = trim(text);
  // from_chars would also take "nan" and "inf".
  const size_t first = text.starts_with('-') ? 1 : 0;
  if (text.size() <= first || text.find_first_of("0123456789.") != first) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view digits = text.substr(0, size_t(end - text.data()));
  const std::string_view rest = text.substr(digits.size());
  const size_t space = std::min(rest.find(' '), rest.size());
  const Scale* glued = find(kGlued, rest.substr(0, space));
  const Scale* word = find(kWords, trim(rest.substr(space)));
  // `30 s` and `64 GiB`: a unit may stand apart, a scale may not.
  if (!word && space == 0 && (word = find(kGlued, trim(rest))) && word->unit == Unit::none) return std::nullopt;
  if (!glued || !word || (glued->unit != Unit::none && word->unit != Unit::none)) return std::nullopt;
  const double factor = glued->factor * word->factor, real = number * factor;
  if (!std::isfinite(real)) return std::nullopt;
  return Quantity{.real = real,
                  .whole = whole_value(digits, factor, real),
                  .unit = glued->unit == Unit::none ? word->unit : glued->unit,
                  .bare = rest.empty()};
}

}  // namespace trainer
