#include <algorithm>
#include <set>

#include "core/model/model.h"
#include "parallel/passes/passes.h"

namespace trainer {
namespace {

// The blocks restored together with block b: its layer (full), itself (selective), or none where nothing was dropped.
std::vector<int> restored_with(int b, const PlanContext& c, const std::vector<BlockLayout>& layouts) {
  const int layer = c.model.layer[size_t(b)];
  const RecomputeLevel level = recompute_level(c.spec.memory.recompute, layer);
  std::vector<int> unit;
  for (int q = 0; q < int(layouts.size()); ++q)
    if (level == RecomputeLevel::full ? c.model.layer[size_t(q)] == layer : q == b) unit.push_back(q);
  const bool dropped = std::any_of(unit.begin(), unit.end(), [&](int q) {
    const auto& saved = layouts[size_t(q)].saved;
    return std::any_of(saved.begin(), saved.end(), [&](const Buffer& s) { return drops(level, s.keep); });
  });
  return dropped ? unit : std::vector<int>{};
}

}  // namespace

Code recompute(Code code, const PlanContext& c, const Program&) {
  const auto layouts = layouts_of(c.model);
  std::vector<std::vector<int>> units;
  for (int b = 0; b < int(layouts.size()); ++b) units.push_back(restored_with(b, c, layouts));
  Code out;
  std::set<std::pair<int, int>> done;  // micro-batch, first block of the unit
  for (const Instr& i : code) {
    if (is_backward(i.verb))
      if (const auto& unit = units[size_t(i.block)]; !unit.empty() && done.insert({i.microbatch, unit[0]}).second)
        for (int b : unit) out.push_back(on_block(Verb::recompute, i, b));
    out.push_back(i);
  }
  return out;
}

}  // namespace trainer
