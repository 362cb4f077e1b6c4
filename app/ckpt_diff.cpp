#include "app/ckpt_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "app/ckpt_tensors.h"

namespace trainer {
namespace {

struct InModelOrder {
  bool operator()(const std::string& a, const std::string& b) const { return before_in_model(a, b); }
};

std::string first_difference(const Checkpoint& a, const Checkpoint& b, const StoredTensor& t) {
  const std::vector<float> x = stored_values(a, t), y = stored_values(b, t);
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
