#include "core/plan/layout.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/ops/control.h"
#include "core/plan/text.h"

namespace trainer {
namespace {

// Holes by offset; the smallest that is large enough is taken (the first one leaves up to 6 % more unused).
class BestFit {
 public:
  explicit BestFit(size_t base) : top_(base) {}
  size_t take(size_t bytes) {
    const size_t n = arena_aligned(bytes);
    auto best = holes_.end();
    for (auto it = holes_.begin(); it != holes_.end(); ++it)
      if (it->second >= n && (best == holes_.end() || it->second < best->second)) best = it;
    if (best != holes_.end()) {
      const auto [at, size] = *best;
      holes_.erase(best);
      if (size > n) holes_[at + n] = size - n;
      return at;
    }
    size_t at = top_;  // the last hole may touch the top: grow from there
    if (!holes_.empty() && holes_.rbegin()->first + holes_.rbegin()->second == top_) {
      at = holes_.rbegin()->first;
      holes_.erase(std::prev(holes_.end()));
    }
    top_ = at + n;
    return at;
  }
  void give(size_t at, size_t bytes) {
    auto it = holes_.insert({at, arena_aligned(bytes)}).first;
    if (const auto next = std::next(it); next != holes_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      holes_.erase(next);
    }
    if (it == holes_.begin()) return;
    if (const auto before = std::prev(it); before->first + before->second == it->first) {
      before->second += it->second;
      holes_.erase(it);
    }
  }

 private:
  size_t top_;
  std::map<size_t, size_t> holes_;
};

using StateOffsets = std::map<std::pair<int16_t, int16_t>, size_t>;

class PlanLayout {
 public:
  PlanLayout(const Program& program, const StateOffsets& state, Plan& plan, Reuse reuse)
      : program_(program),
        state_(state),
        plan_(plan),
        reuse_(reuse),
        heap_(static_bytes(program)),
        at_(plan.slots.size(), kNowhere) {}
  void run() {
    for (const Instr& i : plan_.code) {
      for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u) place(i, plan_.uses[u]);
      // Only now: a temporary must not share bytes with what the instruction writes.
      for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u)
        if (const Use& use = plan_.uses[u]; use.access == Access::free) {
          if (reuse_ == Reuse::yes) heap_.give(use.offset, plan_.slots[use.slot].bytes());
          at_[use.slot] = kNowhere;
        }
    }
  }

 private:
  static constexpr size_t kNowhere = ~size_t{0};
  void place(const Instr& i, Use& use) {
    const Slot& s = plan_.slots[use.slot];
    size_t& at = at_[use.slot];
    if (at == kNowhere) switch (s.kind) {
        case SlotClass::control: at = program_.control_offset; break;
        case SlotClass::outcome: at = program_.outcome_offset; break;
        case SlotClass::ballot: at = program_.ballot_offset[size_t(s.index)]; break;
        case SlotClass::verdict: at = program_.verdict_offset; break;
        case SlotClass::state: at = state_.at({s.block, s.index}); break;
        default:
          check(use.access == Access::write, Exit::spec, "[layout] {} uses {}, which is not live", to_text(i),
                to_text(s));
          at = heap_.take(s.bytes());
      }
    use.offset = at;
  }

  const Program& program_;
  const StateOffsets& state_;
  Plan& plan_;
  const Reuse reuse_;
  BestFit heap_;
  std::vector<size_t> at_;
};

}  // namespace

void layout(Program& p, Reuse reuse) {
  size_t top = 0;
  const auto fixed = [&](size_t bytes) {
    const size_t at = top;
    top += arena_aligned(bytes);
    return at;
  };
  p.control_offset = fixed(sizeof(Control));
  p.outcome_offset = fixed(sizeof(Outcome));
  if (updates_ahead(p)) {
    for (size_t& ballot : p.ballot_offset) ballot = fixed(sizeof(Outcome));
    p.verdict_offset = fixed(sizeof(double));
  }
  StateOffsets state;
  for (StateSlot& s : p.state) state[{s.bucket, s.index}] = s.offset = fixed(s.bytes);
  for (auto& [key, plan] : p.plans) PlanLayout(p, state, plan, reuse).run();
}

size_t record_bytes(const Program& p) {
  const size_t outcome = arena_aligned(sizeof(Outcome)), step = arena_aligned(sizeof(Control)) + outcome;
  return updates_ahead(p) ? step + kBallots * outcome + arena_aligned(sizeof(double)) : step;
}

size_t static_bytes(const Program& p) {
  size_t top = record_bytes(p);
  for (const StateSlot& s : p.state) top += arena_aligned(s.bytes);
  return top;
}

size_t dynamic_top(const Program& p) {
  size_t top = static_bytes(p);
  for (const auto& [key, plan] : p.plans)
    for (const Use& u : plan.uses) top = std::max(top, u.offset + arena_aligned(plan.slots[u.slot].bytes()));
  return top;
}

void place_scratch(Program& p, const std::array<size_t, kLanes>& bytes) {
  p.scratch = bytes;
  p.arena_bytes = dynamic_top(p);
  for (size_t l = 0; l < kLanes; ++l) {
    p.scratch_offset[l] = p.arena_bytes;
    p.arena_bytes += arena_aligned(bytes[l]);
  }
}

}  // namespace trainer
