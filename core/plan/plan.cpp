#include "core/plan/plan.h"

#include <algorithm>

namespace trainer {

std::string_view name_of(Verb v) {
  constexpr std::string_view kNames[] = {"begin",           "load",     "forward",  "recompute", "backward_input",
                                         "backward_weight", "send_act", "recv_act", "send_grad", "recv_grad",
                                         "gather",          "release",  "reduce",   "tie",       "norm",
                                         "agree",           "cast",     "vote",     "trust",     "keep",
                                         "update",          "undo",     "snapshot"};
  return kNames[size_t(v)];
}

std::string_view name_of(StepKind k) {
  constexpr std::string_view kNames[] = {"train", "train_and_snapshot", "snapshot", "evaluate", "train_ahead", "undo"};
  return kNames[size_t(k)];
}

int bucket_of(const Program& p, ParamId id) {
  for (size_t b = 0; b < p.buckets.size(); ++b)
    if (const auto& ids = p.buckets[b].params; std::find(ids.begin(), ids.end(), id) != ids.end()) return int(b);
  return -1;
}

const StateSlot* find_state(const Program& p, int bucket, int index) {
  for (const StateSlot& s : p.state)
    if (s.bucket == bucket && s.index == index) return &s;
  return nullptr;
}

bool updates_ahead(const Program& p) {
  return std::any_of(p.state.begin(), p.state.end(), [](const StateSlot& s) { return s.index >= kPrevious; });
}

const Plan* find_plan(const Program& p, const PlanKey& key) {
  for (const auto& [k, plan] : p.plans)
    if (k == key) return &plan;
  return nullptr;
}

}  // namespace trainer
