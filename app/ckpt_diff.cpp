#include "app/ckpt_diff.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>

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

struct InModelOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    const bool a_moment = a.starts_with(kOptimizerPrefix), b_moment = b.starts_with(kOptimizerPrefix);
    return a_moment != b_moment ? b_moment : natural_less(a, b);
  }
};

std::vector<float> values_of(const Checkpoint& c, const StoredTensor& t) {
  const std::vector<std::byte> stored = read_tensor(c, t.name);
  std::vector<float> values(size_t(t.shape.elements()));
  convert(stored.data(), t.type, reinterpret_cast<std::byte*>(values.data()), DType::f32, t.shape.elements());
  return values;
}

std::string first_difference(const Checkpoint& a, const Checkpoint& b, const StoredTensor& t) {
  const std::vector<float> x = values_of(a, t), y = values_of(b, t);
  const auto differs = [&](size_t i) { return std::memcmp(&x[i], &y[i], sizeof x[i]) != 0; };
  size_t first = x.size(), count = 0;
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!differs(i)) continue;
    first = std::min(first, i);
    ++count;
    largest = std::max(largest, std::abs(double(x[i]) - double(y[i])));
  }
  const size_t width = size_t(t.shape[t.shape.rank - 1]);
  const std::string place =
      t.shape.rank == 1 ? fmt::format("{}", first) : fmt::format("{}, {}", first / width, first % width);
  return fmt::format("{} of {} values differ, by at most {:.3g}; the first at [{}]: {} and {}", count, x.size(),
                     largest, place, x[first], y[first]);
}

}  // namespace

std::vector<std::string> differences(const Checkpoint& a, const Checkpoint& b) {
  std::vector<std::string> all;
  if (a.manifest.state_hash == b.manifest.state_hash) return all;
  std::set<std::string, InModelOrder> names;
  for (const Manifest* m : {&a.manifest, &b.manifest})
    for (const StoredTensor& t : m->tensors) names.insert(t.name);
  for (const std::string& name : names) {
    const StoredTensor *ta = find_tensor(a.manifest, name), *tb = find_tensor(b.manifest, name);
    if (!ta || !tb) all.push_back(fmt::format("{}: only in {}", name, (ta ? a : b).path));
    else if (ta->type != tb->type) all.push_back(fmt::format("{}: {} and {}", name, ta->type->name, tb->type->name));
    else if (ta->shape != tb->shape) all.push_back(fmt::format("{}: shapes differ", name));
    else if (ta->hash != tb->hash)
      all.push_back(fmt::format("{}: {}", name, all.empty() ? first_difference(a, b, *ta) : "values differ"));
  }
  return all;
}

}  // namespace trainer
