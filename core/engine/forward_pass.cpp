#include "core/engine/forward_pass.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/device/meter.h"

namespace trainer {
namespace {

constexpr size_t kAlign = 128;

class Bump {
 public:
  size_t take(size_t bytes) {
    const size_t at = top_;
    top_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return at;
  }
  size_t top() const { return top_; }

 private:
  size_t top_ = 0;
};

size_t bytes_of(const Buffer& b) { return size_t(b.shape.elements()) * size_of(b.dtype); }
std::vector<Buffer> buffers_of(const BlockLayout& l) {
  std::vector<Buffer> all = l.saved;
  all.insert(all.end(), l.forward_work.begin(), l.forward_work.end());
  all.insert(all.end(), l.cache.begin(), l.cache.end());
  return all;
}

// The longest sequence that can be generated: the one whose attention wants the most scratch.
int64_t cache_rows(const Model& model) {
  for (const auto& block : model.blocks)
    if (const BlockLayout l = block->layout(); !l.cache.empty()) return l.cache.front().shape[0];
  return 1;
}

}  // namespace

ForwardLayout lay_out_forward(Program state, const Model& model, int64_t rows) {
  ForwardLayout f;
  f.program = std::move(state);
  f.rows = rows;
  Bump arena;
  std::erase_if(f.program.state, [](const StateSlot& s) { return s.index != int(Role::weight); });
  for (StateSlot& s : f.program.state) s.offset = arena.take(s.bytes);
  f.program.control_offset = arena.take(sizeof(Control));
  f.program.outcome_offset = arena.take(sizeof(Outcome));
  size_t stream = 0;
  for (const auto& block : model.blocks) {
    const BlockLayout l = block->layout();
    for (const Shape& s : l.out) stream = std::max(stream, size_t(s.elements()) * size_of(l.dtype));
    std::vector<size_t> offsets;
    for (const Buffer& b : buffers_of(l)) offsets.push_back(arena.take(bytes_of(b)));
    f.buffers.push_back(std::move(offsets));
  }
  for (size_t& s : f.stream) s = arena.take(stream);
  for (size_t i = 0; i < kBatchFields; ++i) f.batch[i] = arena.take(size_t(rows) * size_of(kBatchDTypes[i]));
  f.logits_shape = {rows, model.params[model.blocks.back()->layout().params.back()].local[0]};
  f.logits = arena.take(size_t(f.logits_shape.elements()) * 4);

  MeterDevice meter;  // says how much scratch the kernels want
  MeterGroupsOfOne groups(meter.counts());
  ForwardPass(f, model, meter, groups).run(Phase::evaluate);
  if (rows == 1)
    ForwardPass(f, model, meter, groups).run(Phase::generate, cache_rows(model) - 1);  // one row: it can decode
  f.program.scratch = meter.counts().scratch;
  for (size_t l = 0; l < kLanes; ++l) f.program.scratch_offset[l] = arena.take(f.program.scratch[l]);
  f.program.arena_bytes = arena.top();
  return f;
}

ForwardPass::ForwardPass(const ForwardLayout& layout, const Model& model, Device& device, Groups& groups)
    : layout_(layout),
      model_(model),
      device_(device),
      groups_(groups),
      base_(device.arena().empty() ? reinterpret_cast<std::byte*>(uintptr_t{1} << 20) : device.arena().data()) {
  for (const auto& block : model.blocks) {
    layouts_.push_back(block->layout());
    std::vector<Tensor> params;
    for (ParamId id : layouts_.back().params) {
      const int bucket = bucket_of(layout.program, id);
      const Bucket& b = layout.program.buckets[size_t(bucket)];
      const StateSlot& slot = *find_state(layout.program, bucket, int(Role::weight));
      const size_t k = size_t(std::find(b.params.begin(), b.params.end(), id) - b.params.begin());
      std::byte* at = base_ + slot.offset + size_t(b.begin[k]) * size_of(slot.dtype);
      params.push_back(make_tensor(at, slot.dtype, model.params[id].local));
    }
    params_.push_back(std::move(params));
  }
}

Batch ForwardPass::batch() const {
  Batch batch;
  for (size_t f = 0; f < kBatchFields; ++f)
    batch.fields[f] = make_tensor(base_ + layout_.batch[f], kBatchDTypes[f], {layout_.rows});
  return batch;
}

Tensor ForwardPass::run(Phase phase, int64_t cache_position) {
  for (size_t b = 0; b < layouts_.size(); ++b)
    run_block(b, b + 1 == layouts_.size() ? Phase::generate : phase, cache_position);
  device_.drain();
  return make_tensor(base_ + layout_.logits, DType::f32, layout_.logits_shape);
}

void ForwardPass::run_block(size_t block, Phase phase, int64_t cache_position) {
  const BlockLayout& l = layouts_[block];
  const std::vector<Buffer> buffers = buffers_of(l);
  std::vector<Tensor> all, in, out;
  for (size_t i = 0; i < buffers.size(); ++i)
    all.push_back(make_tensor(base_ + layout_.buffers[block][i], buffers[i].dtype, buffers[i].shape));
  for (const Shape& s : l.in) in.push_back(make_tensor(base_ + layout_.stream[block % 2], l.dtype, s));
  for (const Shape& s : l.out) out.push_back(make_tensor(base_ + layout_.stream[(block + 1) % 2], l.dtype, s));
  if (block + 1 == layouts_.size()) out = {make_tensor(base_ + layout_.logits, DType::f32, layout_.logits_shape)};
  BlockViews v;
  v.in = in;
  v.out = out;
  v.params = params_[block];
  v.saved = std::span(all).subspan(0, l.saved.size());
  v.work = std::span(all).subspan(l.saved.size(), l.forward_work.size());
  v.cache = std::span(all).subspan(l.saved.size() + l.forward_work.size());
  v.control = make_tensor(base_ + layout_.program.control_offset, DType::u8, {int64_t(sizeof(Control))});
  v.outcome = make_tensor(base_ + layout_.program.outcome_offset, DType::f64, {int64_t(sizeof(Outcome) / 8)});
  v.batch = batch();
  BlockContext context{.compute = device_.lane(Lane::compute),
                       .side = device_.lane(Lane::side),
                       .groups = groups_,
                       .phase = phase,
                       .cache_position = cache_position};
  model_.blocks[block]->forward(context, v);
}

RunSpec decoding_spec(const ModelSpec& model) {
  RunSpec spec;
  spec.model = model;
  spec.data.seq_len = 1;
  spec.train.micro_batch = 1;
  spec.train.global_batch = {1, false};
  spec.precision.compute = Precision::fp32;
  spec.device.kind = DeviceChoice::cpu;
  return spec;
}

std::span<const float> Decoder::append(int32_t token) {
  const Batch batch = pass_.batch();
  *data_as<int32_t>(batch[BatchField::tokens]) = token;
  *data_as<int32_t>(batch[BatchField::positions]) = int32_t(length_);
  *data_as<int64_t>(batch[BatchField::rows]) = length_;
  const Tensor logits = pass_.run(Phase::generate, length_++);
  return {data_as<float>(logits), size_t(logits.elements())};
}

}  // namespace trainer
