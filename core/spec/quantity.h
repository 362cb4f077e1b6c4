// Numbers with units: `4Ki`, `2M`, `250B tokens`, `1000 steps`, `200ms`, `64GiB`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainer {

enum class Unit : uint8_t { none, steps, tokens, sequences, seconds, bytes };
std::string_view name_of(Unit);

// K, M, G or B, T are powers of 1000; Ki, Mi, Gi, Ti of 1024. Times are in seconds.
struct Quantity {
  double real = 0;
  std::optional<int64_t> whole;  // exact, where the value is an integer that fits
  Unit unit = Unit::none;
  bool bare = true;  // digits only: neither scale nor unit
};

// nullopt: not a number, not finite, or an unknown unit.
std::optional<Quantity> parse_quantity(std::string_view text);

}  // namespace trainer
