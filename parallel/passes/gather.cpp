#include <algorithm>
#include <map>
#include <set>

#include "core/model/model.h"
#include "parallel/passes/passes.h"

namespace trainer {
namespace {

// One bucket early is a quarter faster than on demand; more does not pay and costs a bucket of memory each.
constexpr size_t kGatherAhead = 1;

struct Need {
  size_t at;  // instruction
  std::vector<int> buckets;
};

// The buckets of need u, and of those after it until `kGatherAhead` others have come.
std::set<int> window(const std::vector<Need>& needs, size_t u) {
  std::set<int> w;
  if (u == needs.size()) return w;
  w.insert(needs[u].buckets.begin(), needs[u].buckets.end());
  const size_t most = w.size() + kGatherAhead;
  for (++u; u < needs.size(); ++u)
    for (int b : needs[u].buckets) {
      if (w.size() == most) return w;
      w.insert(b);
    }
  return w;
}

// Buckets of the last parallel.zero_keep layers: of all layers they are held for the shortest time.
std::set<int> kept_buckets(const PlanContext& c, const std::vector<std::vector<int>>& of_blocks) {
  const int64_t end = c.spec.model.num_layers, begin = end - c.spec.parallel.zero_keep;
  std::set<int> kept;
  for (size_t b = 0; b < of_blocks.size(); ++b)
    if (c.model.layer[b] >= begin && c.model.layer[b] < end) kept.insert(of_blocks[b].begin(), of_blocks[b].end());
  return kept;
}

}  // namespace

Code gather(Code code, const PlanContext& c, const Program& p) {
  if (c.spec.parallel.zero < 3) return code;
  const auto buckets = buckets_of_blocks(layouts_of(c.model), p);
  std::vector<Need> needs;
  for (size_t k = 0; k < code.size(); ++k)
    if (const Verb v = code[k].verb; v == Verb::forward || v == Verb::recompute || v == Verb::backward_input)
      needs.push_back({k, buckets[size_t(code[k].block)]});
  const std::set<int> kept = kept_buckets(c, buckets);
  std::map<int, size_t> last_need;
  for (size_t u = 0; u < needs.size(); ++u)
    for (int b : needs[u].buckets) last_need[b] = u;
  Insertions insertions(code.size());
  std::set<int> live;
  for (size_t u = 0; u < needs.size(); ++u) {
    for (int b : window(needs, u))
      if (live.insert(b).second) insertions.before(needs[u].at).push_back(on_bucket(Verb::gather, Lane::gather, b));
    const auto next = window(needs, u + 1);
    for (auto it = live.begin(); it != live.end();)
      if (next.contains(*it) || (kept.contains(*it) && last_need[*it] > u)) ++it;
      else {
        insertions.after(needs[u].at).push_back(on_bucket(Verb::release, Lane::gather, *it));
        it = live.erase(it);
      }
  }
  return insertions.apply(code);
}

}  // namespace trainer
