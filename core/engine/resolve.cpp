#include "core/engine/resolve.h"

#include <algorithm>

#include <span>

namespace trainer {
namespace {

// Where a parameter lies: its bucket, and its first element there.
struct Place {
  int bucket = -1;
  int64_t begin = 0;
};
std::vector<Place> places_of(const Program& program, size_t params) {
  std::vector<Place> places(params);
  for (size_t b = 0; b < program.buckets.size(); ++b)
    for (size_t k = 0; k < program.buckets[b].params.size(); ++k)
      places[program.buckets[b].params[k]] = {int(b), program.buckets[b].begin[k]};
  return places;
}

class Resolver {
 public:
  Resolver(const Plan& plan, const Model& model, std::vector<Place> places, std::byte* base)
      : plan_(plan), model_(model), places_(std::move(places)), base_(base) {}

  BlockRanges block(const Instr& instr, const BlockLayout& layout) {
    std::vector<Tensor> in, out, d_in, d_out;
    const bool forward_work = instr.verb == Verb::forward || instr.verb == Verb::recompute;
    std::vector<Tensor> saved(layout.saved.size()), stash(layout.stash.size());
    std::vector<Tensor> work(forward_work ? layout.forward_work.size() : layout.backward_work.size());
    std::vector<std::pair<int, Tensor>> weights, gradients;  // by bucket
    BlockRanges ranges;
    for (uint32_t u = instr.uses[0]; u < instr.uses[1]; ++u) {
      const Use& use = plan_.uses[u];
      if (use.access == Access::free) continue;
      const Slot& slot = plan_.slots[use.slot];
      const Tensor t = view_of(plan_, use, base_);
      const size_t index = size_t(std::max<int16_t>(slot.index, 0));
      switch (slot.kind) {
        case SlotClass::act: (slot.block == instr.block ? in : out).push_back(t); break;
        case SlotClass::d_act: (slot.block == instr.block ? d_in : d_out).push_back(t); break;
        case SlotClass::saved: saved[index] = t; break;
        case SlotClass::stash: stash[index] = t; break;
        case SlotClass::work: work[index] = t; break;
        case SlotClass::state:
        case SlotClass::weight: weights.push_back({slot.block, t}); break;
        case SlotClass::gradient: gradients.push_back({slot.block, t}); break;
        case SlotClass::batch: ranges.batch[index] = t; break;
        case SlotClass::reduced:
        case SlotClass::control:
        case SlotClass::outcome:
        case SlotClass::ballot:
        case SlotClass::verdict: break;
      }
    }
    ranges.in = append(in);
    ranges.out = append(out);
    ranges.d_in = append(d_in);
    ranges.d_out = append(d_out);
    ranges.saved = append(saved);
    ranges.stash = append(stash);
    ranges.work = append(work);
    ranges.params = append(weights.empty() ? std::vector<Tensor>{} : params(layout, weights));
    ranges.grads = gradients.empty() ? Range{} : grads(instr, layout, gradients);
    return ranges;
  }
  ResolvedPlan take() { return std::move(result_); }
  ResolvedPlan& result() { return result_; }

 private:
  Range append(const std::vector<Tensor>& v) {
    const auto begin = uint32_t(result_.tensors.size());
    result_.tensors.insert(result_.tensors.end(), v.begin(), v.end());
    return {begin, uint32_t(result_.tensors.size())};
  }
  Tensor part_of(ParamId id, const std::vector<std::pair<int, Tensor>>& flats) const {
    const Place& place = places_[id];
    for (const auto& [bucket, flat] : flats)
      if (bucket == place.bucket) {
        const Shape& local = model_.params[id].local;
        return make_tensor(flat.data + size_t(place.begin) * size_of(flat.dtype), flat.dtype, local);
      }
    return {};
  }
  std::vector<Tensor> params(const BlockLayout& layout, const std::vector<std::pair<int, Tensor>>& flats) const {
    std::vector<Tensor> v;
    for (ParamId id : layout.params) v.push_back(part_of(id, flats));
    return v;
  }
  Range grads(const Instr& instr, const BlockLayout& layout, const std::vector<std::pair<int, Tensor>>& flats) {
    const auto begin = uint32_t(result_.grads.size());
    for (size_t i = 0; i < layout.params.size(); ++i)
      result_.grads.push_back({part_of(layout.params[i], flats), (instr.fresh >> i & 1) == 0});
    return {begin, uint32_t(result_.grads.size())};
  }

  const Plan& plan_;
  const Model& model_;
  const std::vector<Place> places_;
  std::byte* const base_;
  ResolvedPlan result_;
};

bool calls_block(Verb v) {
  return v == Verb::forward || v == Verb::recompute || v == Verb::backward_input || v == Verb::backward_weight;
}

std::vector<bool> awaited_in(const Plan& plan) {
  std::vector<bool> awaited(plan.code.size());
  for (const InstrId id : plan.edges) awaited[id] = true;
  return awaited;
}

}  // namespace

std::array<size_t, kLanes> events_of(const Program& program) {
  std::array<size_t, kLanes> most{};
  for (const auto& [key, plan] : program.plans) {
    std::array<size_t, kLanes> count{};
    const std::vector<bool> awaited = awaited_in(plan);
    for (size_t id = 0; id < plan.code.size(); ++id) count[size_t(plan.code[id].lane)] += awaited[id];
    for (size_t l = 0; l < most.size(); ++l) most[l] = std::max(most[l], count[l]);
  }
  // Of the plan that runs and of the one that is issued behind it, and where each began.
  for (size_t& n : most) n = 2 * (n + 1);
  return most;
}

std::vector<SharedRun> shared_runs(const Bucket& bucket, const Model& model) {
  std::vector<SharedRun> runs;
  for (size_t k = 0; k < bucket.params.size(); ++k)
    for (const Param::Shared& s : model.params[bucket.params[k]].shared) {
      const SharedRun run{bucket.begin[k] + s.begin, bucket.begin[k] + s.end, s.axis, s.partial};
      if (!runs.empty() && runs.back().end == run.begin && runs.back().axis == run.axis &&
          runs.back().partial == run.partial)
        runs.back().end = run.end;
      else runs.push_back(run);
    }
  return runs;
}

ResolvedPlan resolve(const Plan& plan, const Program& program, const Model& model,
                     const std::vector<BlockLayout>& layouts, std::byte* base) {
  Resolver resolver(plan, model, places_of(program, model.params.size()), base);
  ResolvedPlan& result = resolver.result();
  result.awaited = awaited_in(plan);
  for (const Instr& instr : plan.code) {
    result.lanes |= LaneMask(instr.seam | 1u << unsigned(instr.lane));
    if (!calls_block(instr.verb)) {
      result.block_of.push_back(-1);
      continue;
    }
    result.block_of.push_back(int32_t(result.blocks.size()));
    result.blocks.push_back(resolver.block(instr, layouts[size_t(instr.block)]));
  }
  return resolver.take();
}

}  // namespace trainer
