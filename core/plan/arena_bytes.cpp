#include "core/plan/arena_bytes.h"

#include <algorithm>
#include <map>

#include "core/ops/control.h"
#include "core/plan/layout.h"

namespace trainer {
namespace {

bool persists(SlotClass k) { return k >= SlotClass::state; }
// A reduce works on a copy of a bucket, which belongs to no micro-batch.
bool is_activation(const Slot& s) { return s.kind <= SlotClass::work && s.microbatch >= 0; }

size_t& class_of(ArenaBytes& a, const StateSlot& s) {
  if (s.index >= kStaging) return a.staging;
  if (s.index == int(Role::weight)) return a.weights;
  return s.index == int(Role::master) ? a.master : a.moments;
}
size_t& class_of(ArenaBytes& a, const Slot& s) {
  if (s.kind == SlotClass::weight) return a.weights;
  return is_activation(s) ? a.activations : a.gradients;
}

// Bytes of the live dynamic slots by class when `top` is first reached.
ArenaBytes live_at_top(const Program& p, size_t top) {
  for (const auto& [key, plan] : p.plans) {
    std::map<SlotId, size_t> live;
    for (const Instr& i : plan.code) {
      bool reached = false;
      for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u) {
        const Use& use = plan.uses[u];
        const Slot& s = plan.slots[use.slot];
        if (persists(s.kind)) continue;
        const size_t bytes = arena_aligned(s.bytes());
        if (use.access == Access::write) live[use.slot] = bytes;
        reached |= use.offset + bytes == top;
      }
      if (reached) {
        ArenaBytes a;
        for (const auto& [slot, bytes] : live) class_of(a, plan.slots[slot]) += bytes;
        return a;
      }
      for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u)
        if (plan.uses[u].access == Access::free) live.erase(plan.uses[u].slot);
    }
  }
  return {};
}

}  // namespace

size_t total(const ArenaBytes& a) {
  return a.weights + a.master + a.gradients + a.moments + a.activations + a.staging + a.scratch + a.control;
}

ArenaBytes arena_bytes(const Program& p) {
  const size_t base = static_bytes(p), top = dynamic_top(p);
  ArenaBytes a = live_at_top(p, top);
  a.activations += top - base - total(a);  // holes
  a.control = record_bytes(p);
  for (const StateSlot& s : p.state) class_of(a, s) += arena_aligned(s.bytes);
  for (size_t bytes : p.scratch) a.scratch += arena_aligned(bytes);
  return a;
}

std::vector<ActionPeak> activation_peaks(const Plan& plan) {
  std::vector<ActionPeak> peaks;
  size_t live = 0;
  for (const Instr& i : plan.code) {
    const bool forward = i.verb == Verb::forward;
    if (i.lane == Lane::compute && i.block >= 0) {
      const bool same = !peaks.empty() && peaks.back().forward == forward && peaks.back().microbatch == i.microbatch &&
                        peaks.back().chunk == i.chunk;
      if (!same) peaks.push_back({forward, i.microbatch, i.chunk, 0});
    }
    for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u)
      if (const Slot& s = plan.slots[plan.uses[u].slot]; is_activation(s) && plan.uses[u].access == Access::write)
        live += arena_aligned(s.bytes());
    if (!peaks.empty()) peaks.back().bytes = std::max(peaks.back().bytes, live);
    for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u)
      if (const Slot& s = plan.slots[plan.uses[u].slot]; is_activation(s) && plan.uses[u].access == Access::free)
        live -= arena_aligned(s.bytes());
  }
  return peaks;
}

}  // namespace trainer
