#include "core/model/block_cost.h"

#include "core/device/meter.h"

namespace trainer {
namespace {

Tensor somewhere(DType dtype, const Shape& shape) {
  return make_tensor(reinterpret_cast<std::byte*>(uintptr_t{1} << 20), dtype, shape);  // nobody looks there
}

// The views of a block without bytes behind them.
class FakeViews {
 public:
  FakeViews(const RunSpec& spec, const Model& model, const BlockLayout& layout) : layout_(layout) {
    for (const Shape& s : layout.in) in_.push_back(somewhere(layout.dtype, s));
    for (const Shape& s : layout.out) out_.push_back(somewhere(layout.dtype, s));
    const DType weights = spec.precision.compute == Precision::bf16 ? DType::bf16 : DType::f32;
    for (ParamId id : layout.params) {
      params_.push_back(somewhere(weights, model.params[id].local));
      grads_.push_back({somewhere(DType::f32, model.params[id].local), true});
    }
    saved_ = all(layout.saved);
    stash_ = all(layout.stash);
    forward_work_ = all(layout.forward_work);
    backward_work_ = all(layout.backward_work);
    for (size_t f = 0; f < kBatchFields; ++f)
      batch_.fields[f] = somewhere(kBatchDTypes[f], {spec.train.micro_batch * spec.data.seq_len});
  }
  BlockViews views(bool forward) const {
    BlockViews v;
    v.in = in_;
    v.out = out_;
    v.d_in = in_;
    v.d_out = out_;
    v.params = params_;
    v.saved = saved_;
    v.stash = stash_;
    v.work = forward ? forward_work_ : backward_work_;
    v.grads = grads_;
    v.control = somewhere(DType::u8, {int64_t(sizeof(Control))});
    v.outcome = somewhere(DType::f64, {int64_t(sizeof(Outcome) / 8)});
    v.batch = batch_;
    return v;
  }

 private:
  static std::vector<Tensor> all(const std::vector<Buffer>& buffers) {
    std::vector<Tensor> tensors;
    for (const Buffer& b : buffers) tensors.push_back(somewhere(b.dtype, b.shape));
    return tensors;
  }
  const BlockLayout& layout_;
  std::vector<Tensor> in_, out_, params_, saved_, stash_, forward_work_, backward_work_;
  std::vector<Gradient> grads_;
  Batch batch_;
};

template <class Call>
Cost counted(RecomputeLevel level, Call&& call) {
  MeterDevice device;
  MeterGroupsOfOne groups(device.counts());
  BlockContext context{.compute = device.lane(Lane::compute),
                       .side = device.lane(Lane::side),
                       .groups = groups,
                       .phase = Phase::train,
                       .recompute = level};
  call(context);
  Cost sum;
  for (const auto& [op, count] : device.counts().ops) {
    sum.flops += count.flops;
    sum.bytes += count.bytes;
  }
  return sum;
}

}  // namespace

std::vector<BlockCost> block_costs(const RunSpec& spec, const Model& model) {
  std::vector<BlockCost> costs;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const Block& block = *model.blocks[b];
    const BlockLayout layout = block.layout();
    const RecomputeLevel level = recompute_level(spec.memory.recompute, model.layer[b]);
    const FakeViews fake(spec, model, layout);
    const BlockViews forward = fake.views(true), backward = fake.views(false);
    BlockCost c;
    c.forward = counted(level, [&](BlockContext& x) { block.forward(x, forward); });
    if (layout.has_input_half) {
      if (level != RecomputeLevel::none)
        c.recompute = counted(level, [&](BlockContext& x) { block.recompute(x, forward); });
      c.backward_input = counted(level, [&](BlockContext& x) { block.backward_input(x, backward); });
    }
    if (layout.has_weight_half)
      c.backward_weight = counted(level, [&](BlockContext& x) { block.backward_weight(x, backward); });
    costs.push_back(c);
  }
  return costs;
}

}  // namespace trainer
