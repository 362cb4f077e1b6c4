// A step that is kept: issued, then captured, then launched.
#include <algorithm>
#include <utility>

#include "core/engine/engine.h"

namespace trainer {

// A store takes every slice of a snapshot from the host.
bool Engine::becomes_graph(const Prepared& p) const {
  const auto& code = p.plan->code;
  return spec_.device.cuda_graph && (!to_.store || std::none_of(code.begin(), code.end(), [](const Instr& i) {
           return i.verb == Verb::snapshot;
         }));
}

void Engine::run(const PlanKey& key, const Control& control) {
  Prepared& p = prepared(key);
  if (!becomes_graph(p) || !std::exchange(p.issued, true)) return issue_plan(key, control);
  if (p.graph) launch_again(p, key, control);
  else keep(p, key, control);
  to_.device.launch(*p.graph);
}

void Engine::keep(Prepared& p, const PlanKey& key, const Control& control) {
  const MovedBytes before = to_.groups.moved();
  to_.device.begin_graph(p.views.lanes);
  issue_plan(key, control);
  p.graph = to_.device.end_graph();
  p.agreed = agreed_;
  p.moved = to_.groups.moved();
  for (size_t a = 0; a < before.size(); ++a)
    for (size_t l = 0; l < before[a].size(); ++l) p.moved[a][l] -= before[a][l];
}

void Engine::drop_graphs() {
  for (auto& [key, p] : prepared_) p.graph.reset();
}

// What the host adds to a step, in the order in which issuing the plan would add it.
void Engine::launch_again(Prepared& p, const PlanKey& key, const Control& control) {
  write_page(key, control);
  for (const Instr& i : p.plan->code)
    if (i.verb == Verb::load) to_.feed.stage(split_of(key), control.step, i.microbatch, batch_of(*p.plan, i));
  to_.groups.add_moved(p.moved);
  agreed_ = p.agreed;
}

}  // namespace trainer
