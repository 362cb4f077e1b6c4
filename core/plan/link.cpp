#include "core/plan/link.h"

#include <algorithm>
#include <map>

namespace trainer {
namespace {

// What an instruction is known to follow: for each lane, how many of this plan's instructions on it are over (a vector
// clock), and for which lanes everything issued before this plan is over.
struct Known {
  std::array<uint32_t, kLanes> done{};
  LaneMask before = 0;
  void join(const Known& o) {
    for (size_t l = 0; l < kLanes; ++l) done[l] = std::max(done[l], o.done[l]);
    before |= o.before;
  }
};

class Clocks {
 public:
  explicit Clocks(const Plan& p) : plan_(p), after_(p.code.size()), place_(p.code.size()) {}
  Known start(InstrId id) {  // what its own lane tells it
    const size_t l = size_t(plan_.code[id].lane);
    Known k = last_[l];
    k.before |= LaneMask(1u << l);
    place_[id] = ++count_[l];
    return k;
  }
  bool knows(const Known& k, InstrId earlier) const {
    return k.done[size_t(plan_.code[earlier].lane)] >= place_[earlier];
  }
  const Known& after(InstrId id) const { return after_[id]; }
  void finish(InstrId id, Known k) {
    const size_t l = size_t(plan_.code[id].lane);
    k.done[l] = place_[id];
    after_[id] = last_[l] = k;
  }

 private:
  const Plan& plan_;
  std::vector<Known> after_;
  std::vector<uint32_t> place_;
  std::array<Known, kLanes> last_{};
  std::array<uint32_t, kLanes> count_{};
};

// The arena cut where slots begin and end; a state per piece.
template <class State>
class Pieces {
 public:
  template <class Visit>
  void visit(size_t lo, size_t hi, Visit&& f) {
    if (lo == hi) return;
    auto it = cut(lo);
    cut(hi);
    for (; it->first != hi; ++it) f(it->second);
  }
  void set(size_t lo, size_t hi, const State& s) {
    if (lo == hi) return;
    const auto first = cut(lo), end = cut(hi);
    at_.erase(std::next(first), end);
    first->second = s;
  }

 private:
  using Map = std::map<size_t, State>;
  typename Map::iterator cut(size_t x) {
    const auto it = std::prev(at_.upper_bound(x));
    return it->first == x ? it : at_.insert(std::next(it), {x, it->second});
  }
  Map at_{{0, State{}}};
};

struct Last {  // of a lane only the last reader matters
  int writer = -1;
  std::array<int, kLanes> reader;
  Last() { reader.fill(-1); }
};
struct Lanes {
  LaneMask writers = 0, readers = 0;
};

template <class Visit>  // f(lo, hi, writes)
void for_touches(const Plan& p, const Instr& i, Visit&& f) {
  for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u)
    if (const Use& use = p.uses[u]; use.access != Access::free)
      f(use.offset, use.offset + p.slots[use.slot].bytes(), use.access != Access::read);
}

Pieces<Lanes> touched_by_any_plan(const Program& p) {
  Pieces<Lanes> ever;
  for (const auto& [key, plan] : p.plans)
    for (const Instr& i : plan.code) {
      const auto lane = LaneMask(1u << size_t(i.lane));
      for_touches(plan, i, [&](size_t lo, size_t hi, bool writes) {
        ever.visit(lo, hi, [&](Lanes& l) { (writes ? l.writers : l.readers) |= lane; });
      });
    }
  return ever;
}

class Linker {
 public:
  Linker(Plan& plan, Pieces<Lanes>& ever) : plan_(plan), ever_(ever), clocks_(plan) {}
  void run() {
    plan_.edges.clear();
    for (InstrId id = 0; id < plan_.code.size(); ++id) {
      Instr& i = plan_.code[id];
      Known known = clocks_.start(id);
      const LaneMask seams = find_needs(i);
      add_waits(i, known);
      i.seam = LaneMask(seams & ~known.before);
      known.before |= seams;
      clocks_.finish(id, known);
      note(i, int(id));
    }
  }

 private:
  // Fills needs_ with the instructions of this plan that must be over; returns the lanes that matter before it.
  LaneMask find_needs(const Instr& i) {
    needs_.clear();
    LaneMask seams = 0;
    for_touches(plan_, i, [&](size_t lo, size_t hi, bool writes) {
      bytes_.visit(lo, hi, [&](const Last& l) {
        needs_.push_back(l.writer);
        if (writes) needs_.insert(needs_.end(), l.reader.begin(), l.reader.end());
      });
      ever_.visit(lo, hi, [&](const Lanes& l) { seams |= writes ? l.writers | l.readers : l.writers; });
    });
    return seams;
  }
  // The latest first: it may imply the others, never the other way round.
  void add_waits(Instr& i, Known& known) {
    std::sort(needs_.rbegin(), needs_.rend());
    i.waits[0] = uint32_t(plan_.edges.size());
    for (int on : needs_)
      if (on >= 0 && !clocks_.knows(known, InstrId(on))) {
        plan_.edges.push_back(InstrId(on));
        known.join(clocks_.after(InstrId(on)));
      }
    i.waits[1] = uint32_t(plan_.edges.size());
  }
  void note(const Instr& i, int id) {
    for_touches(plan_, i, [&](size_t lo, size_t hi, bool writes) {
      if (!writes) bytes_.visit(lo, hi, [&](Last& l) { l.reader[size_t(i.lane)] = id; });
    });
    Last written;
    written.writer = id;
    for_touches(plan_, i, [&](size_t lo, size_t hi, bool writes) {
      if (writes) bytes_.set(lo, hi, written);
    });
  }

  Plan& plan_;
  Pieces<Lanes>& ever_;
  Clocks clocks_;
  Pieces<Last> bytes_;
  std::vector<int> needs_;
};

}  // namespace

void link(Program& p) {
  Pieces<Lanes> ever = touched_by_any_plan(p);
  for (auto& [key, plan] : p.plans) Linker(plan, ever).run();
}

}  // namespace trainer
