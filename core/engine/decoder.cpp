#include "core/engine/decoder.h"

#include <algorithm>
#include <cstring>

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

}  // namespace

RunSpec decoding_spec(const ModelSpec& model) {
  RunSpec spec;
  spec.model = model;
  spec.data.seq_len = 1;
  spec.train.micro_batch = 1;
  spec.train.global_batch = {1, false};
  spec.precision.compute = Precision::fp32;
  return spec;
}

DecoderLayout layout_decoder(Program state, const Model& model) {
  DecoderLayout d;
  d.program = std::move(state);
  Bump arena;
  std::erase_if(d.program.state, [](const StateSlot& s) { return s.index != int(Role::weight); });
  for (StateSlot& s : d.program.state) s.offset = arena.take(s.bytes);
  d.program.control_offset = arena.take(sizeof(Control));
  d.program.outcome_offset = arena.take(sizeof(Outcome));
  size_t stream = 0;
  for (const auto& block : model.blocks) {
    const BlockLayout l = block->layout();
    for (const Shape& s : l.out) stream = std::max(stream, size_t(s.elements()) * size_of(l.dtype));
    std::vector<size_t> offsets;
    for (const Buffer& b : buffers_of(l)) offsets.push_back(arena.take(bytes_of(b)));
    d.buffers.push_back(std::move(offsets));
  }
  for (size_t& s : d.stream) s = arena.take(stream);
  for (size_t f = 0; f < kBatchFields; ++f) d.batch[f] = arena.take(size_of(kBatchDTypes[f]));
  const BlockLayout head = model.blocks.back()->layout();
  d.logits_shape = {1, model.params[head.params.back()].local[0]};
  d.logits = arena.take(size_t(d.logits_shape.elements()) * 4);

  // The meter says how much scratch the kernels want; the longest sequence wants the most.
  d.program.arena_bytes = arena.top();
  MeterDevice meter;
  struct NoGroups final : Groups {
    Comm& on(Axis, Lane) override { fail(Exit::usage, "[decoder] one rank talks to nobody"); }
    Comm& pipe(int, int, bool) override { fail(Exit::usage, "[decoder] one rank talks to nobody"); }
  } groups;
  Decoder dry(d, model, meter, groups);
  dry.append(0);
  d.program.scratch = meter.counts().scratch;
  for (int l = 0; l < kLanes; ++l) d.program.scratch_offset[size_t(l)] = arena.take(d.program.scratch[size_t(l)]);
  d.program.arena_bytes = arena.top();
  return d;
}

Decoder::Decoder(const DecoderLayout& layout, const Model& model, Device& device, Groups& groups)
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
      params.push_back(make_tensor(base_ + slot.offset + size_t(b.begin[k]) * size_of(slot.dtype), slot.dtype,
                                   model.params[id].local));
    }
    params_.push_back(std::move(params));
  }
}

std::span<const float> Decoder::append(int32_t token) {
  if (device_.kind() != DeviceKind::meter) {
    const auto position = int32_t(length_);
    const int64_t row = length_;
    std::memcpy(base_ + layout_.batch[size_t(BatchField::tokens)], &token, sizeof token);
    std::memcpy(base_ + layout_.batch[size_t(BatchField::positions)], &position, sizeof position);
    std::memcpy(base_ + layout_.batch[size_t(BatchField::rows)], &row, sizeof row);
  }
  for (size_t b = 0; b < layouts_.size(); ++b) run_block(b);
  device_.drain();
  ++length_;
  const auto* logits = reinterpret_cast<const float*>(base_ + layout_.logits);
  return {logits, size_t(layout_.logits_shape.elements())};
}

void Decoder::run_block(size_t block) {
  const BlockLayout& l = layouts_[block];
  std::vector<Tensor> all;
  const std::vector<Buffer> buffers = buffers_of(l);
  for (size_t i = 0; i < buffers.size(); ++i)
    all.push_back(make_tensor(base_ + layout_.buffers[block][i], buffers[i].dtype, buffers[i].shape));
  std::vector<Tensor> in, out;
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
  for (size_t f = 0; f < kBatchFields; ++f)
    v.batch.fields[f] = make_tensor(base_ + layout_.batch[f], kBatchDTypes[f], {1});
  BlockContext context{.compute = device_.lane(Lane::compute),
                       .side = device_.lane(Lane::side),
                       .groups = groups_,
                       .phase = Phase::generate,
                       .cache_position = length_};
  model_.blocks[block]->forward(context, v);
}

}  // namespace trainer
