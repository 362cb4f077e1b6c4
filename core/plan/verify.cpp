#include "core/plan/verify.h"

#include <algorithm>
#include <bit>
#include <map>
#include <span>

#include "core/base/error.h"
#include "core/plan/text.h"

namespace trainer {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Exit::spec, "[verify] " + fmt::format(format, std::forward<Args>(args)...));
}

std::span<const Use> uses_of(const Plan& p, const Instr& i) {
  return std::span(p.uses).subspan(i.uses[0], i.uses[1] - i.uses[0]);
}
bool outlives(SlotClass k) { return k >= SlotClass::state; }
bool comes_from_before(SlotClass k) { return k == SlotClass::state || k == SlotClass::verdict; }
std::string where(const Plan& p, InstrId id) { return fmt::format("instruction {}, {}", id, to_text(p.code[id])); }

// -- lifetimes and bytes --------------------------------------------------------------------------------------------
class Lifetimes {
 public:
  Lifetimes(const Plan& plan, size_t arena) : plan_(plan), arena_(arena), state_(plan.slots.size()) {}
  void run() {
    for (InstrId id = 0; id < plan_.code.size(); ++id) {
      const auto uses = uses_of(plan_, plan_.code[id]);
      for (const Use& u : uses)
        if (u.access != Access::free) touch(id, u);
      for (const Use& u : uses)
        if (u.access == Access::free) end(id, u);
    }
    for (SlotId s = 0; s < state_.size(); ++s)
      if (state_[s].life == Life::live && !outlives(plan_.slots[s].kind))
        refuse("{}: {} is never freed", where(plan_, state_[s].born), to_text(plan_.slots[s]));
  }

 private:
  enum class Life : uint8_t { unborn, live, over };
  struct State {
    Life life = Life::unborn;
    size_t offset = 0;
    InstrId born = 0;
  };
  void touch(InstrId id, const Use& u) {
    const Slot& s = plan_.slots[u.slot];
    State& now = state_[u.slot];
    if (now.life == Life::over) refuse("{} uses {} after it was freed", where(plan_, id), to_text(s));
    if (now.life == Life::live) {
      if (u.offset != now.offset) refuse("{}: {} has moved", where(plan_, id), to_text(s));
      return;
    }
    if (u.access != Access::write && !comes_from_before(s.kind))
      refuse("{} uses {}, which nobody wrote", where(plan_, id), to_text(s));
    now = {Life::live, u.offset, id};
    if (u.offset + s.bytes() > arena_) refuse("{}: {} ends beyond the arena", where(plan_, id), to_text(s));
    const auto after = live_.lower_bound(u.offset);
    const bool overlaps = (after != live_.end() && after->first < u.offset + s.bytes()) ||
                          (after != live_.begin() && std::prev(after)->second > u.offset);
    if (overlaps) refuse("{}: {} lies on bytes of a live slot", where(plan_, id), to_text(s));
    if (s.bytes()) live_[u.offset] = u.offset + s.bytes();
  }
  void end(InstrId id, const Use& u) {
    State& now = state_[u.slot];
    if (now.life != Life::live)
      refuse("{} frees {}, which is not live", where(plan_, id), to_text(plan_.slots[u.slot]));
    now.life = Life::over;
    live_.erase(now.offset);
  }

  const Plan& plan_;
  const size_t arena_;
  std::vector<State> state_;
  std::map<size_t, size_t> live_;  // begin -> end
};

// -- order ----------------------------------------------------------------------------------------------------------
// The arena is cut into atoms at every place where a slot of any plan begins or ends.
class Atoms {
 public:
  explicit Atoms(const Program& p) {
    for (const auto& [key, plan] : p.plans)
      for (const Use& u : plan.uses) {
        borders_.push_back(u.offset);
        borders_.push_back(u.offset + plan.slots[u.slot].bytes());
      }
    std::sort(borders_.begin(), borders_.end());
    borders_.erase(std::unique(borders_.begin(), borders_.end()), borders_.end());
  }
  size_t index(size_t offset) const {
    return size_t(std::lower_bound(borders_.begin(), borders_.end(), offset) - borders_.begin());
  }
  size_t count() const { return borders_.size(); }

 private:
  std::vector<size_t> borders_;
};

struct Touch {
  size_t first, end;  // atoms
  bool writes;
};

struct LanesOf {  // an atom's users in any plan
  LaneMask read = 0, written = 0;
};

class Races {
 public:
  Races(const Plan& plan, const Atoms& atoms, const std::vector<LanesOf>& earlier)
      : plan_(plan),
        atoms_(atoms),
        earlier_(earlier),
        last_(atoms.count()),
        clock_(plan.code.size()),
        knows_earlier_(plan.code.size()) {}
  void run() {
    for (InstrId id = 0; id < plan_.code.size(); ++id) {
      advance(id);
      const Instr& i = plan_.code[id];
      touches_.clear();
      for (const Use& u : uses_of(plan_, i))
        if (u.access != Access::free)
          touches_.push_back(
              {atoms_.index(u.offset), atoms_.index(u.offset + plan_.slots[u.slot].bytes()), u.access != Access::read});
      for (const Touch& t : touches_)
        for (size_t a = t.first; a < t.end; ++a) check_atom(id, a, t.writes);
      for (const Touch& t : touches_)
        for (size_t a = t.first; a < t.end; ++a) note(i.lane, a, t.writes);
    }
  }

 private:
  using Vector = std::array<uint32_t, kLanes>;  // per lane, how many instructions of it are over
  struct Users {
    Vector read{}, written{};  // per lane, the place of its last read and write; 0: none
    LaneMask lanes = 0;
  };

  // The instruction's vector clock: its lane's, joined with those it waits for, and one more on its own lane.
  void advance(InstrId id) {
    const Instr& i = plan_.code[id];
    const size_t own = size_t(i.lane);
    Vector& v = clock_[id];
    LaneMask& before = knows_earlier_[id];
    v = lane_clock_[own];
    before = LaneMask(lane_knows_[own] | i.seam | 1u << own);
    for (uint32_t w = i.waits[0]; w < i.waits[1]; ++w) {
      const InstrId on = plan_.edges[w];
      if (on >= id) refuse("{} waits for instruction {}, which comes later", where(plan_, id), on);
      for (size_t l = 0; l < kLanes; ++l) v[l] = std::max(v[l], clock_[on][l]);
      before |= knows_earlier_[on];
    }
    v[own] = lane_clock_[own][own] + 1;
    lane_clock_[own] = v;
    lane_knows_[own] = before;
    now_ = &v;
    before_ = before;
  }
  void check_atom(InstrId id, size_t atom, bool writes) {
    const auto own = LaneMask(1u << size_t(plan_.code[id].lane));
    const Users& a = last_[atom];
    for (LaneMask rest = LaneMask(a.lanes & ~own); rest; rest = LaneMask(rest & (rest - 1))) {
      const size_t l = size_t(std::countr_zero(rest));
      if (a.written[l] > (*now_)[l] || (writes && a.read[l] > (*now_)[l]))
        refuse("{} races with the {} lane on the same bytes", where(plan_, id), name_of(Lane(l)));
    }
    const LanesOf& e = earlier_[atom];
    if (LaneMask(e.written | (writes ? e.read : 0)) & ~before_)
      refuse("{} races with an earlier step: its seam misses a lane", where(plan_, id));
  }
  void note(Lane lane, size_t atom, bool writes) {
    const size_t l = size_t(lane);
    last_[atom].lanes |= LaneMask(1u << l);
    (writes ? last_[atom].written : last_[atom].read)[l] = (*now_)[l];
  }

  const Plan& plan_;
  const Atoms& atoms_;
  const std::vector<LanesOf>& earlier_;
  std::vector<Users> last_;
  std::vector<Vector> clock_;
  std::vector<LaneMask> knows_earlier_;
  std::array<Vector, kLanes> lane_clock_{};
  std::array<LaneMask, kLanes> lane_knows_{};
  std::vector<Touch> touches_;
  const Vector* now_ = nullptr;
  LaneMask before_ = 0;
};

std::vector<LanesOf> lanes_of_atoms(const Program& p, const Atoms& atoms) {
  std::vector<LanesOf> all(atoms.count());
  for (const auto& [key, plan] : p.plans)
    for (const Instr& i : plan.code)
      for (const Use& u : uses_of(plan, i)) {
        if (u.access == Access::free) continue;
        const size_t end = atoms.index(u.offset + plan.slots[u.slot].bytes());
        for (size_t a = atoms.index(u.offset); a < end; ++a)
          (u.access == Access::read ? all[a].read : all[a].written) |= LaneMask(1u << size_t(i.lane));
      }
  return all;
}

// -- duties ---------------------------------------------------------------------------------------------------------
class Duties {
 public:
  Duties(const Program& p, const PlanKey& key, const Plan& plan) : p_(p), kind_(key.kind), plan_(plan) {
    for (const Instr& i : plan.code) ++times_[{i.verb, i.bucket, i.slice}];
  }
  void run() const {
    const bool steps = computes(kind_), ahead = kind_ == StepKind::train_ahead;
    wants(Verb::begin, -1, -1, steps);
    wants(Verb::agree, -1, -1, steps && !ahead);
    wants(Verb::trust, -1, -1, ahead);
    for (Ballot b : {Ballot::tokens, Ballot::outcome}) {
      wants(Verb::cast, -1, int16_t(b), ahead);
      wants(Verb::vote, -1, int16_t(b), ahead);
    }
    if (ahead) trusts_in_time();
    for (const StateSlot& s : p_.state) {
      if (s.index == int(Role::weight)) bucket(s);
      if (s.index >= kStaging && s.index < kPrevious)
        wants(Verb::snapshot, s.bucket, int16_t(s.index - kStaging),
              kind_ == StepKind::train_and_snapshot || kind_ == StepKind::snapshot);
    }
    gradients();
  }

 private:
  void wants(Verb v, int16_t bucket, int16_t slice, bool owed) const {
    const auto it = times_.find({v, bucket, slice});
    const int n = it == times_.end() ? 0 : it->second;
    if (n != int(owed))
      refuse("a {} step has {} {} of bucket {} slice {}, wanted {}", name_of(kind_), n, name_of(v), bucket, slice,
             int(owed));
  }
  // Behind the vote on its own step it would wait for the world, and leave out the update that an undo takes back.
  void trusts_in_time() const {
    const auto of = [&](Verb v, int16_t slice) {
      return std::find_if(plan_.code.begin(), plan_.code.end(),
                          [&](const Instr& i) { return i.verb == v && i.slice == slice; });
    };
    const auto trust = of(Verb::trust, -1), vote = of(Verb::vote, int16_t(Ballot::outcome));
    if (trust > vote)
      refuse("{} stands behind the vote on its own step", where(plan_, InstrId(trust - plan_.code.begin())));
  }
  void bucket(const StateSlot& weight) const {
    const bool undoes = kind_ == StepKind::undo;
    wants(Verb::update, weight.bucket, -1, trains(kind_));
    wants(Verb::keep, weight.bucket, -1, kind_ == StepKind::train_ahead);
    wants(Verb::undo, weight.bucket, -1, undoes);
    wants(Verb::tie, weight.bucket, -1, trains(kind_) && p_.buckets[size_t(weight.bucket)].tied);
    for (const StateSlot& s : p_.state)
      if (s.bucket == weight.bucket && s.index == int(Role::moment1) && s.end - s.begin < weight.end - weight.begin)
        wants(Verb::gather, weight.bucket, -1, trains(kind_) || undoes);
  }
  // Each life of a bucket's gradient: every parameter contributed, then one reduce.
  void gradients() const {
    std::vector<int> reduces(plan_.slots.size()), uses(plan_.slots.size());
    for (const Use& u : plan_.uses) ++uses[u.slot];
    int64_t contributions = 0, owed = 0;
    for (const Instr& i : plan_.code) {
      contributions += std::popcount(i.fresh);
      if (i.verb != Verb::reduce) continue;
      for (const Use& u : uses_of(plan_, i)) ++reduces[u.slot];
    }
    for (SlotId s = 0; s < plan_.slots.size(); ++s) {
      const Slot& slot = plan_.slots[s];
      if (slot.kind != SlotClass::gradient || uses[s] == 0) continue;
      if (reduces[s] == 0) refuse("{} is never reduced", to_text(slot));
      owed += int64_t(p_.buckets[size_t(slot.block)].params.size());
    }
    if (contributions != owed) refuse("{} first contributions to gradients, wanted {}", contributions, owed);
  }

  const Program& p_;
  const StepKind kind_;
  const Plan& plan_;
  std::map<std::tuple<Verb, int16_t, int16_t>, int> times_;
};

}  // namespace

void verify(const Program& p) {
  const Atoms atoms(p);
  const std::vector<LanesOf> earlier = lanes_of_atoms(p, atoms);
  for (const auto& [key, plan] : p.plans) {
    Duties(p, key, plan).run();
    Lifetimes(plan, p.arena_bytes).run();
    Races(plan, atoms, earlier).run();
  }
}

}  // namespace trainer
