#include "core/plan/bind.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/buckets.h"
#include "core/plan/text.h"

namespace trainer {
namespace {

bool persists(SlotClass k) { return k >= SlotClass::state; }

// Slots by name; a write makes a new one.
class SlotTable {
 public:
  SlotId write(Slot s) {
    const auto [it, first] = current_.insert({key(s), SlotId(slots.size())});
    if (!first) {
      if (persists(s.kind)) return it->second;
      s.life = int16_t(slots[it->second].life + 1);
      it->second = SlotId(slots.size());
    }
    slots.push_back(s);
    return it->second;
  }
  SlotId use(const Slot& s) {
    if (persists(s.kind)) return write(s);
    const auto it = current_.find(key(s));
    check(it != current_.end(), Exit::spec, "[plan] {} is used before it is written", to_text(s));
    return it->second;
  }
  std::vector<Slot> slots;

 private:
  static uint64_t key(const Slot& s) {
    return uint64_t(s.kind) << 48 | uint64_t(uint16_t(s.microbatch)) << 32 | uint64_t(uint16_t(s.block)) << 16 |
           uint16_t(s.index);
  }
  std::unordered_map<uint64_t, SlotId> current_;
};

class Binder {
 public:
  Binder(const PlanContext& c, const Program& p)
      : c_(c), p_(p), bucket_of_param_(c.model.params.size(), -1), contributed_(p.buckets.size()) {
    for (const auto& b : c.model.blocks) layouts_.push_back(b->layout());
    for (size_t b = 0; b < c.model.blocks.size(); ++b)
      levels_.push_back(recompute_level(c.spec.memory.recompute, c.model.layer[b]));
    for (size_t b = 0; b < p.buckets.size(); ++b)
      for (ParamId id : p.buckets[b].params) bucket_of_param_[id] = int(b);
    for (const StateSlot& s : p.state) state_[{s.bucket, s.index}] = &s;
  }

  Plan run(std::vector<Instr> code) {
    note_batch_reads(code);
    for (Instr& i : code) {
      i.uses[0] = uint32_t(uses_.size());
      bind(i);
      i.uses[1] = uint32_t(uses_.size());
    }
    Plan plan;
    plan.code = std::move(code);
    place_frees(plan);
    plan.slots = std::move(slots_.slots);
    return plan;
  }

 private:
  // -- names ---------------------------------------------------------------------------------------------------------
  const BlockLayout& of(int b) const { return layouts_[size_t(b)]; }
  const Bucket& bucket(int k) const { return p_.buckets[size_t(k)]; }
  Slot border(SlotClass k, int m, int b, size_t i) const {
    return {k, int16_t(m), int16_t(b), int16_t(i), 0, of(b).dtype, of(b).in[i]};
  }
  static Slot buffer(SlotClass k, const Buffer& x, int m, int b, size_t i) {
    return {k, int16_t(m), int16_t(b), int16_t(i), 0, x.dtype, x.shape};
  }
  Slot batch(int m, int field) const {
    const int64_t rows = c_.spec.train.micro_batch * c_.key.seq_len;
    return {SlotClass::batch, int16_t(m), -1, int16_t(field), 0, kBatchDTypes[size_t(field)], {rows}};
  }
  static Slot flat(SlotClass kind, int k, DType dtype, int64_t n) { return {kind, -1, int16_t(k), 0, 0, dtype, {n}}; }
  Slot weight(int k) const { return flat(SlotClass::weight, k, compute_dtype(c_.spec.precision), bucket(k).padded); }
  Slot gradient(int k) const {
    return flat(SlotClass::gradient, k, gradient_dtype(c_.spec.precision), bucket(k).padded);
  }
  Slot reduced(int k) const {
    return flat(SlotClass::reduced, k, gradient_dtype(c_.spec.precision), bucket(k).padded / c_.mesh.shards);
  }
  // The bucket as ranks sum it, where that is another dtype.
  Slot on_the_wire(int k) const { return flat(SlotClass::work, k, bucket(k).reduce, bucket(k).padded); }
  Slot final_gradient(int k) const { return zero() >= 2 ? reduced(k) : gradient(k); }
  Slot state(int k, int index) const {
    const StateSlot& s = *state_.at({int16_t(k), int16_t(index)});
    return {SlotClass::state, -1, int16_t(k), int16_t(index), 0, s.dtype, {s.end - s.begin}};
  }
  static Slot control() { return {SlotClass::control, -1, -1, 0, 0, DType::u8, {int64_t(sizeof(Control))}}; }
  static Slot outcome() { return {SlotClass::outcome, -1, -1, 0, 0, DType::f64, {int64_t(sizeof(Outcome) / 8)}}; }
  static Slot ballot(int16_t index) {
    return {SlotClass::ballot, -1, -1, index, 0, DType::f64, {int64_t(sizeof(Outcome) / 8)}};
  }
  static Slot verdict() { return {SlotClass::verdict, -1, -1, 0, 0, DType::f64, {1}}; }
  int64_t zero() const { return c_.spec.parallel.zero; }
  bool dropped(int b, const Buffer& x) const { return drops(levels_[size_t(b)], x.keep); }
  bool ends_layer(int b) const {
    return size_t(b) + 1 == layouts_.size() || c_.model.layer[size_t(b)] != c_.model.layer[size_t(b) + 1];
  }

  // -- uses ----------------------------------------------------------------------------------------------------------
  void read(const Slot& s) { uses_.push_back({slots_.use(s), Access::read, 0}); }
  void add(const Slot& s) { uses_.push_back({slots_.use(s), Access::add, 0}); }
  void write(const Slot& s) { uses_.push_back({slots_.write(s), Access::write, 0}); }
  void temporary(const Slot& s) {
    write(s);
    temporaries_.insert(uses_.back().slot);
  }
  void borders(SlotClass k, int m, int b, void (Binder::*use)(const Slot&)) {
    for (size_t i = 0; i < of(b).in.size(); ++i) (this->*use)(border(k, m, b, i));
  }
  void buffers(SlotClass k, const std::vector<Buffer>& all, int m, int b, void (Binder::*use)(const Slot&)) {
    for (size_t i = 0; i < all.size(); ++i) (this->*use)(buffer(k, all[i], m, b, i));
  }
  void batch_reads(BatchMask mask, int m) {
    for (int f = 0; f < kBatchFields; ++f)
      if (mask >> f & 1) read(batch(m, f));
  }
  std::vector<int> buckets_of(int b) const {
    std::vector<int> ks;
    for (ParamId id : of(b).params)
      if (const int k = bucket_of_param_[id]; std::find(ks.begin(), ks.end(), k) == ks.end()) ks.push_back(k);
    return ks;
  }
  void weights(int b) {
    for (int k : buckets_of(b)) read(zero() == 3 ? weight(k) : state(k, int(Role::weight)));
  }

  // The first contribution to a bucket begins a life of its gradient; each parameter's first one writes, later ones
  // add.
  void contribute(Instr& i) {
    const BlockLayout& l = of(i.block);
    check(l.params.size() <= 32, Exit::spec, "[plan] {}: {} parameters in a block, wanted at most 32", l.name,
          l.params.size());
    for (int k : buckets_of(i.block)) contributed_[size_t(k)].empty() ? write(gradient(k)) : add(gradient(k));
    for (size_t q = 0; q < l.params.size(); ++q)
      if (contributed_[size_t(bucket_of_param_[l.params[q]])].insert(l.params[q]).second) i.fresh |= 1u << q;
  }
  void end_of_gradient(int k) {
    check(contributed_[size_t(k)].size() == bucket(k).params.size(), Exit::spec,
          "[plan] bucket {} is reduced when {} of its {} parameters have contributed", k,
          contributed_[size_t(k)].size(), bucket(k).params.size());
    contributed_[size_t(k)].clear();
  }

  void forward(Instr& i) {
    const int m = i.microbatch, b = i.block;
    const BlockLayout& l = of(b);
    const bool train = trains(c_.key.kind);
    batch_reads(l.reads, m);
    borders(SlotClass::act, m, b, &Binder::read);
    weights(b);
    if (l.reads_control) read(control());
    if (l.adds_outcome) add(outcome());
    if (!l.out.empty()) borders(SlotClass::act, m, b + 1, &Binder::write);
    for (size_t q = 0; q < l.saved.size(); ++q) {
      const Slot s = buffer(SlotClass::saved, l.saved[q], m, b, q);
      !train || l.grads_in_forward || dropped(b, l.saved[q]) ? temporary(s) : write(s);
    }
    buffers(SlotClass::work, l.forward_work, m, b, &Binder::temporary);
    if (!train || !l.grads_in_forward) return;
    borders(SlotClass::d_act, m, b, &Binder::write);
    contribute(i);
  }
  void recompute(const Instr& i) {
    const int m = i.microbatch, b = i.block;
    const BlockLayout& l = of(b);
    batch_reads(l.reads, m);
    borders(SlotClass::act, m, b, &Binder::read);
    weights(b);
    if (l.reads_control) read(control());
    // Full recompute restores the borders inside a layer too.
    if (levels_[size_t(b)] == RecomputeLevel::full && !ends_layer(b)) borders(SlotClass::act, m, b + 1, &Binder::write);
    for (size_t q = 0; q < l.saved.size(); ++q) {
      const Slot s = buffer(SlotClass::saved, l.saved[q], m, b, q);
      dropped(b, l.saved[q]) ? write(s) : read(s);
    }
    buffers(SlotClass::work, l.forward_work, m, b, &Binder::temporary);
  }
  void backward_input(const Instr& i) {
    const int m = i.microbatch, b = i.block;
    const BlockLayout& l = of(b);
    batch_reads(l.backward_input_reads, m);
    if (l.input_reads_in) borders(SlotClass::act, m, b, &Binder::read);
    borders(SlotClass::d_act, m, b + 1, &Binder::read);
    weights(b);
    if (l.reads_control) read(control());
    buffers(SlotClass::saved, l.saved, m, b, &Binder::read);
    buffers(SlotClass::stash, l.stash, m, b, &Binder::write);
    borders(SlotClass::d_act, m, b, &Binder::write);
    buffers(SlotClass::work, l.backward_work, m, b, &Binder::temporary);
  }
  void backward_weight(Instr& i) {
    const int m = i.microbatch, b = i.block;
    const BlockLayout& l = of(b);
    batch_reads(l.backward_weight_reads, m);
    if (l.weight_reads_in) borders(SlotClass::act, m, b, &Binder::read);
    if (l.weight_reads_d_out) borders(SlotClass::d_act, m, b + 1, &Binder::read);
    if (l.reads_control) read(control());
    buffers(SlotClass::saved, l.saved, m, b, &Binder::read);
    buffers(SlotClass::stash, l.stash, m, b, &Binder::read);
    contribute(i);
  }
  void gather(int k) {
    if (zero() < 3) return add(state(k, int(Role::weight)));
    read(state(k, int(Role::weight)));
    write(weight(k));
  }
  void reduce(int k) {
    add(gradient(k));  // in place
    if (c_.mesh.dp > 1 && bucket(k).reduce != gradient(k).dtype) temporary(on_the_wire(k));
    if (zero() < 2) return;
    reduced_.insert(k).second ? write(reduced(k)) : add(reduced(k));
    end_of_gradient(k);
  }
  void update(int k) {
    read(final_gradient(k));
    read(control());
    for (Role r : {Role::weight, Role::master, Role::moment1, Role::moment2})
      if (state_.contains({int16_t(k), int16_t(r)})) add(state(k, int(r)));
    if (zero() < 2) end_of_gradient(k);
  }
  void vote(Ballot which) {
    add(ballot(int16_t(which)));
    if (which == Ballot::outcome) add(verdict());
  }
  void keep(int k) {
    read(control());
    for (Role r : saved_roles(c_.spec.precision)) {
      read(state(k, int(r)));
      write(state(k, kPrevious + int(r)));
    }
  }
  void undo(int k) {
    for (Role r : saved_roles(c_.spec.precision)) {
      read(state(k, kPrevious + int(r)));
      add(state(k, int(r)));
    }
    if (state_.contains({int16_t(k), int16_t(Role::master)})) add(state(k, int(Role::weight)));
  }

  void bind(Instr& i) {
    const int m = i.microbatch, b = i.block, k = i.bucket;
    switch (i.verb) {
      case Verb::begin:
        write(control());
        write(outcome());
        break;
      case Verb::load:
        for (int f = 0; f < kBatchFields; ++f)
          if (batch_fields_[m] >> f & 1) write(batch(m, f));
        break;
      case Verb::forward: forward(i); break;
      case Verb::recompute: recompute(i); break;
      case Verb::backward_input: backward_input(i); break;
      case Verb::backward_weight: backward_weight(i); break;
      case Verb::send_act: borders(SlotClass::act, m, b, &Binder::read); break;
      case Verb::recv_act: borders(SlotClass::act, m, b, &Binder::write); break;
      case Verb::send_grad: borders(SlotClass::d_act, m, b, &Binder::read); break;
      case Verb::recv_grad: borders(SlotClass::d_act, m, b, &Binder::write); break;
      case Verb::gather: gather(k); break;
      case Verb::release: uses_.push_back({slots_.use(weight(k)), Access::free, 0}); break;
      case Verb::reduce: reduce(k); break;
      case Verb::tie: add(final_gradient(k)); break;
      case Verb::norm:
        read(final_gradient(k));
        add(outcome());
        break;
      case Verb::agree:
        add(outcome());
        add(control());
        if (updates_ahead(p_)) write(verdict());  // what an earlier step was found to be is over
        break;
      case Verb::cast:
        read(outcome());
        write(ballot(i.slice));
        break;
      case Verb::vote: vote(Ballot(i.slice)); break;
      case Verb::trust:
        read(ballot(int16_t(Ballot::tokens)));
        read(verdict());
        add(control());
        break;
      case Verb::keep: keep(k); break;
      case Verb::update: update(k); break;
      case Verb::undo: undo(k); break;
      case Verb::snapshot:
        read(state(k, i.slice));
        write(state(k, kStaging + i.slice));
        break;
    }
  }

  // The fields of each micro-batch that some instruction of the list reads: the load fills no others.
  void note_batch_reads(const std::vector<Instr>& code) {
    for (const Instr& i : code) {
      BatchMask mask = 0;
      if (i.verb == Verb::forward || i.verb == Verb::recompute) mask = of(i.block).reads;
      if (i.verb == Verb::backward_input) mask = of(i.block).backward_input_reads;
      if (i.verb == Verb::backward_weight) mask = of(i.block).backward_weight_reads;
      if (mask) batch_fields_[i.microbatch] |= mask;
    }
  }

  // Ends each life at its last use.
  void place_frees(Plan& plan) {
    struct Ends {
      InstrId first = 0, last = 0;
      bool freed = false;
    };
    std::vector<Ends> ends(slots_.slots.size());
    for (InstrId id = 0; id < plan.code.size(); ++id)
      for (uint32_t u = plan.code[id].uses[0]; u < plan.code[id].uses[1]; ++u) {
        Ends& e = ends[uses_[u].slot];
        if (uses_[u].access == Access::write) e.first = id;
        e.last = id;
        e.freed |= uses_[u].access == Access::free;
      }
    plan.uses.reserve(uses_.size() * 3 / 2);
    for (InstrId id = 0; id < plan.code.size(); ++id) {
      const auto [begin, end] = plan.code[id].uses;
      plan.code[id].uses[0] = uint32_t(plan.uses.size());
      plan.uses.insert(plan.uses.end(), uses_.begin() + begin, uses_.begin() + end);
      for (uint32_t u = begin; u < end; ++u) {
        const SlotId s = uses_[u].slot;
        Ends& e = ends[s];
        if (persists(slots_.slots[s].kind) || e.freed || e.last != id) continue;
        check(e.first != id || temporaries_.contains(s), Exit::spec, "[plan] {} is written by {} for nobody",
              to_text(slots_.slots[s]), to_text(plan.code[id]));
        plan.uses.push_back({s, Access::free, 0});
        e.freed = true;
      }
      plan.code[id].uses[1] = uint32_t(plan.uses.size());
    }
  }

  const PlanContext& c_;
  const Program& p_;
  std::vector<BlockLayout> layouts_;
  std::vector<RecomputeLevel> levels_;
  std::vector<int> bucket_of_param_;
  std::map<std::pair<int16_t, int16_t>, const StateSlot*> state_;
  SlotTable slots_;
  std::vector<Use> uses_;
  std::set<SlotId> temporaries_;
  std::map<int, BatchMask> batch_fields_;       // per micro-batch
  std::vector<std::set<ParamId>> contributed_;  // per bucket, in the gradient's present life
  std::set<int> reduced_;
};

}  // namespace

Plan bind(std::vector<Instr> code, const PlanContext& c, const Program& p) { return Binder(c, p).run(std::move(code)); }

}  // namespace trainer
