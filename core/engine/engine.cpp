#include "core/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>

#include "core/base/error.h"
#include "core/ops/ops.h"

namespace trainer {
namespace {

// The meter has no arena; its views need addresses that are not null all the same.
std::byte* base_of(Device& device) {
  const auto arena = device.arena();
  return arena.empty() ? reinterpret_cast<std::byte*>(uintptr_t{1} << 20) : arena.data();
}
std::span<const Tensor> part(const std::vector<Tensor>& v, Range r) {
  return std::span(v).subspan(r.begin, r.end - r.begin);
}

// The last of a step that the host waits for.
bool tells_host(const Instr& i) {
  return i.verb == Verb::agree || (i.verb == Verb::vote && Ballot(i.slice) == Ballot::outcome);
}

void add_stop(const void* flag, int64_t, Outcome& outcome) {
  outcome.stop_requested += static_cast<const std::atomic<int>*>(flag)->load(std::memory_order_relaxed) != 0;
}

}  // namespace

Engine::Engine(const Program& program, const RunSpec& spec, const Mesh& mesh, const Model& model,
               const EngineDevices& to)
    : program_(program),
      spec_(spec),
      mesh_(mesh),
      model_(model),
      to_(to),
      base_(base_of(to.device)),
      pages_(*reinterpret_cast<HostPage*>(to.device.page().data())) {
  for (const auto& block : model.blocks) layouts_.push_back(block->layout());
  for (const Bucket& bucket : program.buckets) shared_.push_back(shared_runs(bucket, model));
  for (const auto& [key, plan] : program.plans) {
    Prepared& p = prepared_[{key.kind, key.microbatches, key.seq_len}];
    p.plan = &plan;
    p.views = resolve(plan, program, model, layouts_, base_);
    if (spec.log.trace) {
      const size_t n = plan.code.size();
      p.stamps = {reinterpret_cast<Stamps*>(to.device.more_page(n * sizeof(Stamps)).data()), n};
    }
    done_.resize(std::max(done_.size(), plan.code.size()));
  }
}

Engine::Prepared& Engine::prepared(const PlanKey& key) {
  const auto it = prepared_.find({key.kind, key.microbatches, key.seq_len});
  check(it != prepared_.end(), Exit::usage,
        "[engine] the program has no plan for a {} step of {} micro-batches of {} tokens", name_of(key.kind),
        key.microbatches, key.seq_len);
  return it->second;
}

StepReport Engine::step(const PlanKey& key, const Control& control) {
  begin(key, control);
  return finish();
}

void Engine::begin(const PlanKey& key, const Control& control) {
  const auto now = std::chrono::steady_clock::now();
  turn_ = waiting_ == 0 ? 0 : 1 - turn_;
  run(key, control);
  begun_[turn_] = {key, control.step, agreed_, now};
  ++waiting_;
}

StepReport Engine::finish() {
  const size_t turn = waiting_ == kStepPages ? 1 - turn_ : turn_;
  const auto& [key, step, agreed, start] = begun_[turn];
  --waiting_;
  to_.device.wait(agreed);
  to_.groups.check_alive();
  const Outcome& out = pages_.steps[turn].outcome;
  StepReport r;
  r.step = step;
  r.tokens = out.tokens;
  r.loss = out.loss_sum / out.tokens;
  r.grad_norm = trains(key.kind) ? std::sqrt(out.norm2) / out.tokens : 0;
  r.finite = out.nonfinite == 0 && std::isfinite(out.loss_sum);
  r.stop = out.stop_requested > 0;
  r.refused = out.refused > 0;
  r.data_hash = data_hash_of(out);
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return r;
}

void Engine::issue_plan(const PlanKey& key, const Control& control) {
  const Prepared& p = prepared(key);
  write_page(key, control);
  std::array<Event, kLanes> before;  // what a seam waits for: all that a lane had when this plan began
  for (int l = 0; l < kLanes; ++l)
    if (p.views.lanes >> l & 1) before[size_t(l)] = to_.device.lane(Lane(l)).record();
  Stream& compute = to_.device.lane(Lane::compute);
  compute.begin_account(kPlanAccount);
  for (size_t id = 0; id < p.plan->code.size(); ++id) {
    const Instr& instr = p.plan->code[id];
    Stream& lane = to_.device.lane(instr.lane);
    for (int l = 0; l < kLanes; ++l)
      if (instr.seam >> l & 1) lane.wait(before[size_t(l)]);
    for (uint32_t w = instr.waits[0]; w < instr.waits[1]; ++w) lane.wait(done_[p.plan->edges[w]]);
    if (!p.stamps.empty()) launch(lane, Stamp{&p.stamps[id].begin});
    issue({p, instr, id, key, control, lane});
    if (!p.stamps.empty()) launch(lane, Stamp{&p.stamps[id].end});
    if (p.views.awaited[id]) done_[id] = lane.record();
    if (tells_host(instr)) agreed_ = lane.record_for_host();
  }
  compute.end_account(kPlanAccount);
}

std::vector<Span> Engine::spans(const PlanKey& key) {
  std::vector<Span> spans;
  for (const Stamps& s : prepared(key).stamps) spans.push_back({double(s.begin) * 1e-9, double(s.end) * 1e-9});
  return spans;
}

// The first of a replica's ranks has the data's hash to say; any rank may have been asked to stop.
void Engine::write_page(const PlanKey& key, const Control& control) {
  const bool first_of_replica = mesh_.stage == 0 && mesh_.context == 0 && mesh_.slice == 0;
  NoteCall hash, stop;
  if (trains(key.kind) && first_of_replica) hash = to_.feed.hash_note();
  if (to_.stop) stop = {.read = add_stop, .source = to_.stop};
  hash.step = stop.step = control.step;
  page().control = control;
  page().notes[0].call = hash;
  page().notes[1].call = stop;
}

void Engine::issue(const Call& call) {
  const Instr& i = call.instr;
  switch (i.verb) {
    case Verb::begin: return launch(call.lane, Begin{&page().control, control(), outcome()});
    case Verb::load: return load(call);
    case Verb::forward:
    case Verb::recompute:
    case Verb::backward_input:
    case Verb::backward_weight: return run_block(call);
    case Verb::send_act: return pipe(call).send(call.lane, find(call, SlotClass::act), 1);
    case Verb::recv_act: return pipe(call).recv(call.lane, find(call, SlotClass::act), 0);
    case Verb::send_grad: return pipe(call).send(call.lane, find(call, SlotClass::d_act), 1);
    case Verb::recv_grad: return pipe(call).recv(call.lane, find(call, SlotClass::d_act), 0);
    case Verb::gather: return gather(call);
    case Verb::release: return;  // bookkeeping: its uses free the slot
    case Verb::reduce: return reduce(call);
    case Verb::tie: return tie(call);
    case Verb::norm: return norm(call);
    case Verb::agree: return agree(call);
    case Verb::cast: return cast(call);
    case Verb::vote: return vote(call);
    case Verb::trust: return launch(call.lane, Trust{control(), ballot(Ballot::tokens), verdict()});
    case Verb::keep: return keep(call);
    case Verb::update: return update(call);
    case Verb::undo: return undo(call);
    case Verb::snapshot: return snapshot(call);
  }
}

Comm& Engine::pipe(const Call& call) {
  const Instr& i = call.instr;
  const bool sends = i.verb == Verb::send_act || i.verb == Verb::send_grad;
  return to_.groups.pipe(sends ? mesh_.stage : i.peer, sends ? i.peer : mesh_.stage,
                         i.lane == Lane::send_grad || i.lane == Lane::recv_grad);
}

void Engine::load(const Call& call) {
  to_.feed.fill(call.lane, split_of(call.key), call.control.step, call.instr.microbatch,
                batch_of(*call.prepared.plan, call.instr));
}

Split Engine::split_of(const PlanKey& key) { return key.kind == StepKind::evaluate ? Split::valid : Split::train; }

Batch Engine::batch_of(const Plan& plan, const Instr& load) const {
  Batch batch;
  for (uint32_t u = load.uses[0]; u < load.uses[1]; ++u)
    if (const Use& use = plan.uses[u]; use.access == Access::write)
      batch.fields[size_t(plan.slots[use.slot].index)] = view_of(plan, use, base_);
  return batch;
}

void Engine::run_block(const Call& call) {
  const ResolvedPlan& views = call.prepared.views;
  const BlockRanges& r = views.blocks[size_t(views.block_of[call.index])];
  BlockViews v;
  v.in = part(views.tensors, r.in);
  v.out = part(views.tensors, r.out);
  v.d_in = part(views.tensors, r.d_in);
  v.d_out = part(views.tensors, r.d_out);
  v.params = part(views.tensors, r.params);
  v.saved = part(views.tensors, r.saved);
  v.stash = part(views.tensors, r.stash);
  v.work = part(views.tensors, r.work);
  v.grads = std::span(views.grads).subspan(r.grads.begin, r.grads.end - r.grads.begin);
  v.control = control();
  v.outcome = outcome();
  v.batch.fields = r.batch;
  BlockContext context{.compute = call.lane,
                       .side = to_.device.lane(Lane::side),
                       .groups = to_.groups,
                       .phase = trains(call.key.kind) ? Phase::train : Phase::evaluate,
                       .recompute = recompute_level(spec_.memory.recompute, model_.layer[size_t(call.instr.block)])};
  const Block& block = *model_.blocks[size_t(call.instr.block)];
  switch (call.instr.verb) {
    case Verb::forward: return block.forward(context, v);
    case Verb::recompute: return block.recompute(context, v);
    case Verb::backward_input: return block.backward_input(context, v);
    default: return block.backward_weight(context, v);
  }
}

void Engine::gather(const Call& call) {
  Comm& group = to_.groups.on(program_.buckets[size_t(call.instr.bucket)].shard, call.instr.lane);
  const Tensor state = find(call, SlotClass::state), weight = find(call, SlotClass::weight);
  if (weight) return group.all_gather(call.lane, state, weight);  // ZeRO-3: the shard into a whole that comes and goes
  const int64_t n = state.elements() / group.size();
  group.all_gather(call.lane, flat_part(state, n * group.rank(), n * (group.rank() + 1)), state);
}

void Engine::reduce(const Call& call) {
  const Tensor gradient = find(call, SlotClass::gradient), other = find(call, SlotClass::work);
  sum_partial(call, gradient);
  if (other) launch(call.lane, Copy{other, gradient});
  const Tensor& full = other ? other : gradient;
  if (spec_.parallel.zero == 0) {
    to_.groups.on(Axis::dp, call.instr.lane).all_reduce(call.lane, full);
    if (other) launch(call.lane, Copy{gradient, other});
    return;
  }
  const Bucket& bucket = program_.buckets[size_t(call.instr.bucket)];
  Comm& group = to_.groups.on(bucket.shard, call.instr.lane);
  const int64_t n = full.elements() / group.size(), begin = n * group.rank(), end = begin + n;
  const Tensor slice = flat_part(full, begin, end);
  group.reduce_scatter(call.lane, full, slice);  // in place, so it needs no scratch
  to_.groups.on(bucket.replica, call.instr.lane).all_reduce(call.lane, slice);
  if (spec_.parallel.zero == 1) {
    if (other) launch(call.lane, Copy{flat_part(gradient, begin, end), slice});
    return;
  }
  for (uint32_t u = call.instr.uses[0]; u < call.instr.uses[1]; ++u) {
    const Use& use = call.prepared.plan->uses[u];
    if (call.prepared.plan->slots[use.slot].kind != SlotClass::reduced) continue;
    const Tensor sum = view_of(*call.prepared.plan, use, base_);
    if (use.access == Access::add) launch(call.lane, Add{sum, slice});
    else if (use.access == Access::write) launch(call.lane, Copy{sum, slice});
  }
}

// What ranks of tp or kv hold alike has a partial gradient on each of them.
void Engine::sum_partial(const Call& call, const Tensor& gradient) {
  for (const SharedRun& run : shared_[size_t(call.instr.bucket)])
    if (run.partial)
      to_.groups.on(run.axis, call.instr.lane).all_reduce(call.lane, flat_part(gradient, run.begin, run.end));
}

void Engine::tie(const Call& call) {
  const Tensor g = final_gradient(call);
  to_.groups.on(Axis::tied, call.instr.lane)
      .all_reduce(call.lane, spec_.parallel.zero == 0 ? g : owned(g, call.instr.bucket));
}

// Replicas of a slice each count a part of it; what other ranks hold as well is counted by the first of them.
void Engine::norm(const Call& call) {
  const int bucket = call.instr.bucket;
  const Tensor gradient = owned(final_gradient(call), bucket);
  const Slice mine = owned_elements(bucket);
  Comm& replicas = to_.groups.on(program_.buckets[size_t(bucket)].replica, call.instr.lane);
  const int64_t n = mine.end - mine.begin;
  int64_t at = mine.begin + n * replicas.rank() / replicas.size();
  const int64_t end = mine.begin + n * (replicas.rank() + 1) / replicas.size();
  const auto count = [&](int64_t to) {
    if (at < to) launch(call.lane, SquaredNorm{flat_part(gradient, at - mine.begin, to - mine.begin), outcome()});
  };
  for (const SharedRun& run : shared_[size_t(bucket)]) {
    if (run.end <= at || run.begin >= end || to_.groups.on(run.axis, call.instr.lane).rank() == 0) continue;
    count(run.begin);
    at = std::min(run.end, end);
  }
  count(end);
}

void Engine::add_notes(const Call& call, const Tensor& outcome) {
  for (NotePage& note : page().notes)
    if (note.call.read) launch(call.lane, Note{&note, outcome});
}

void Engine::agree(const Call& call) {
  add_notes(call, outcome());
  to_.groups.on(Axis::world, call.instr.lane).all_reduce(call.lane, outcome());
  launch(call.lane, Agree{control(), outcome(), updates_ahead(program_) ? verdict() : Tensor{}});
  launch(call.lane, Tell{&page().outcome, outcome()});
}

void Engine::update(const Call& call) {
  const Bucket& bucket = program_.buckets[size_t(call.instr.bucket)];
  const auto state = [&](Role r) { return updated(call, find(call, SlotClass::state, int(r))); };
  const Tensor weight = state(Role::weight), master = state(Role::master);
  const int64_t first = spec_.parallel.zero == 0 ? 0 : owned_elements(call.instr.bucket).begin;
  const OptimizerSpec& o = spec_.optimizer;
  AdamW op{.master = master ? master : weight,
           .weight = master ? weight : Tensor{},
           .m = state(Role::moment1),
           .v = state(Role::moment2),
           .g = updated(call, final_gradient(call)),
           .control = control()};
  op.beta1 = float(o.betas[0]);
  op.beta2 = float(o.betas[1]);
  op.epsilon = float(o.eps);
  op.weight_decay = float(o.weight_decay);
  op.decayed = std::clamp<int64_t>(bucket.decayed - first, 0, op.m.elements());
  if (op.m.elements() > 0) launch(call.lane, op);
}

void Engine::snapshot(const Call& call) {
  const int16_t bucket = call.instr.bucket;
  const StateSlot& slot = *find_state(program_, bucket, kStaging + call.instr.slice);
  const Tensor from = owned(find(call, SlotClass::state, call.instr.slice), bucket),
               to = owned(find(call, SlotClass::state, slot.index), bucket);
  launch(call.lane, Copy{to, from});
  if (to_.store) to_.store->put(call.lane, call.control.step - 1, slot, to);  // the state as the step before left it
}

Tensor Engine::find(const Call& call, SlotClass kind, int index) const {
  const Plan& plan = *call.prepared.plan;
  for (uint32_t u = call.instr.uses[0]; u < call.instr.uses[1]; ++u)
    if (const Slot& s = plan.slots[plan.uses[u].slot]; s.kind == kind && (index < 0 || s.index == index))
      return view_of(plan, plan.uses[u], base_);
  return {};
}
Tensor Engine::final_gradient(const Call& call) const {
  const Tensor reduced = find(call, SlotClass::reduced);
  return reduced ? reduced : find(call, SlotClass::gradient);
}
Slice Engine::owned_elements(int bucket) {
  const Bucket& b = program_.buckets[size_t(bucket)];
  Comm& group = to_.groups.on(b.shard, Lane::compute);
  const int64_t n = b.padded / group.size();
  return {std::min(n * group.rank(), b.size), std::min(n * (group.rank() + 1), b.size)};
}
Tensor Engine::owned(const Tensor& flat, int bucket) {
  const auto [begin, end] = owned_elements(bucket);
  return flat.elements() == program_.buckets[size_t(bucket)].padded ? flat_part(flat, begin, end)
                                                                    : flat_part(flat, 0, end - begin);
}
Tensor Engine::updated(const Call& call, const Tensor& flat) {
  if (!flat) return flat;
  const bool all = spec_.parallel.zero == 0;
  return all ? flat_part(flat, 0, program_.buckets[size_t(call.instr.bucket)].size) : owned(flat, call.instr.bucket);
}
Tensor Engine::control() const { return fixed(program_.control_offset, DType::u8, sizeof(Control)); }
Tensor Engine::outcome() const { return fixed(program_.outcome_offset, DType::f64, sizeof(Outcome) / 8); }
Tensor Engine::fixed(size_t offset, DType dtype, int64_t n) const { return make_tensor(base_ + offset, dtype, {n}); }

}  // namespace trainer
