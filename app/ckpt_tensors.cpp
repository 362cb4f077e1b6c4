#include "app/ckpt_tensors.h"

#include <charconv>

#include "io/convert.h"

namespace trainer {
namespace {

// Numbers in names compare as numbers.
bool natural_less(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      uint64_t x = 0, y = 0;
      const auto a_end = std::from_chars(a.data(), a.data() + a.size(), x).ptr;
      const auto b_end = std::from_chars(b.data(), b.data() + b.size(), y).ptr;
      if (x != y) return x < y;
      a.remove_prefix(size_t(a_end - a.data()));
      b.remove_prefix(size_t(b_end - b.data()));
      continue;
    }
    if (a[0] != b[0]) return a[0] < b[0];
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

}  // namespace

bool before_in_model(std::string_view a, std::string_view b) {
  const bool a_moment = a.starts_with(kOptimizerPrefix), b_moment = b.starts_with(kOptimizerPrefix);
  return a_moment != b_moment ? b_moment : natural_less(a, b);
}

std::vector<float> stored_values(const Checkpoint& c, const StoredTensor& t) {
  const std::vector<std::byte> stored = read_tensor(c, t.name);
  std::vector<float> values(size_t(t.shape.elements()));
  convert(stored.data(), t.type, reinterpret_cast<std::byte*>(values.data()), DType::f32, t.shape.elements());
  return values;
}

}  // namespace trainer
