// Who made the first NaN: the step again, one instruction at a time.
#include <cmath>

#include "core/engine/engine.h"
#include "core/tensor/bf16.h"

namespace trainer {
namespace {

bool all_finite(Device& device, const Tensor& on_device) {
  const int64_t n = on_device.elements();
  std::vector<std::byte> values(on_device.bytes());
  device.download(values, on_device.data);
  const Tensor t = make_tensor(values.data(), on_device.dtype, {n});
  if (t.dtype == DType::f32) {
    for (int64_t i = 0; i < n; ++i)
      if (!std::isfinite(data_as<float>(t)[i])) return false;
  } else if (t.dtype == DType::bf16) {
    for (int64_t i = 0; i < n; ++i)
      if (!std::isfinite(to_float(data_as<bf16>(t)[i]))) return false;
  }
  return true;
}
bool holds_values(SlotClass kind) {
  return kind == SlotClass::act || kind == SlotClass::d_act || kind == SlotClass::saved || kind == SlotClass::stash;
}

}  // namespace

std::string Engine::describe(const Instr& i) const {
  std::string text(name_of(i.verb));
  if (i.block >= 0) text += " of " + layouts_[size_t(i.block)].name;
  if (i.microbatch >= 0) text += ", micro-batch " + std::to_string(i.microbatch);
  return text;
}

std::optional<std::string> Engine::nonfinite_weight() const {
  for (const StateSlot& s : program_.state) {
    if (s.index != int(Role::weight)) continue;
    const Bucket& bucket = program_.buckets[size_t(s.bucket)];
    for (size_t k = 0; k < bucket.params.size(); ++k) {
      const Param& param = model_.params[bucket.params[k]];
      const int64_t lo = std::max(s.begin, bucket.begin[k]),
                    hi = std::min(s.end, bucket.begin[k] + param.local.elements());
      if (lo < hi && !all_finite(to_.device, make_tensor(base_ + s.offset + size_t(lo - s.begin) * size_of(s.dtype),
                                                         s.dtype, {hi - lo})))
        return "the weight " + param.name + " before the step";
    }
  }
  return std::nullopt;
}

std::optional<std::string> Engine::nonfinite_output(const Prepared& p, size_t id) const {
  const Instr& instr = p.plan->code[id];
  if (instr.block < 0) return std::nullopt;
  for (uint32_t u = instr.uses[0]; u < instr.uses[1]; ++u) {
    const Use& use = p.plan->uses[u];
    const bool written = use.access == Access::write && holds_values(p.plan->slots[use.slot].kind);
    if (written && !all_finite(to_.device, view_of(*p.plan, use, base_))) return describe(instr);
  }
  if (p.views.block_of[id] < 0) return std::nullopt;
  const Range grads = p.views.blocks[size_t(p.views.block_of[id])].grads;
  for (size_t g = grads.begin; g < grads.end; ++g)
    if (!all_finite(to_.device, p.views.grads[g].tensor)) return "weight gradient in " + describe(instr);
  return std::nullopt;
}

// To the end, whatever is found: other ranks wait for this one in the collectives.
std::optional<std::string> Engine::find_nonfinite(const PlanKey& key, const Control& control) {
  to_.device.drain();
  write_page(key, control);
  std::optional<std::string> found = nonfinite_weight();
  const Prepared& p = prepared(key);
  for (size_t id = 0; id < p.plan->code.size(); ++id) {
    const Instr& instr = p.plan->code[id];
    if (instr.verb == Verb::update || instr.verb == Verb::snapshot) continue;
    issue({p, instr, id, key, control, to_.device.lane(instr.lane)});
    to_.device.drain();
    if (!found) found = nonfinite_output(p, id);
  }
  return found;
}

}  // namespace trainer
