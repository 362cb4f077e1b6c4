#include "tests/model/run_model.h"

#include <cmath>
#include <limits>

#include "core/base/hash.h"
#include "core/model/blocks/head.h"

namespace trainer::test {
namespace {

constexpr size_t kScratch = size_t{32} << 20;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<Buffer> allocate(const std::vector<trainer::Buffer>& wanted) {
  std::vector<Buffer> buffers;
  for (const trainer::Buffer& w : wanted) {
    buffers.emplace_back(w.dtype, w.shape);
    buffers.back().fill(kNaN);
  }
  return buffers;
}
std::vector<Tensor> tensors_of(const std::vector<Buffer>& buffers) {
  std::vector<Tensor> tensors;
  for (const Buffer& b : buffers) tensors.push_back(b.tensor());
  return tensors;
}

template <class T>
Values values_of(const std::vector<T>& v) {
  return Values(v.begin(), v.end());
}

constexpr double kNoise = 0.1;

}  // namespace

SmallDevice::SmallDevice()
    : arena_(static_cast<std::byte*>(std::aligned_alloc(128, kScratch))),
      device_({arena_.get(), kScratch}, {.offset = {}, .bytes = {kScratch}}, {.threads = 1, .pin = false}) {}

Sample random_sample(const RunSpec& spec, uint32_t seed) {
  const int64_t T = spec.data.seq_len, N = spec.train.micro_batch * T, cut = T / 3;
  std::minstd_rand random(seed + 1);
  Sample s;
  for (int64_t n = 0; n < N; ++n) {
    const int64_t t = n % T;
    s.tokens.push_back(int32_t(random() % uint64_t(spec.model.vocab_size)));
    s.targets.push_back(int32_t(random() % uint64_t(spec.model.vocab_size)));
    s.weights.push_back(random() % 5 ? 1.0f : 0.0f);
    s.positions.push_back(int32_t(t < cut ? t : t - cut));
    s.segments.push_back(t < cut ? 0 : 1);
    s.rows.push_back(int64_t(seed) * 1000 + n);
  }
  return s;
}

Values piece_values(const Buffer& buffer, const Param::Piece& piece) {
  const Values all = buffer.values();
  Values values;
  for_piece(buffer.tensor().shape, piece, [&](size_t i, size_t) { values.push_back(all[i]); });
  return values;
}

void set_piece(Buffer& buffer, const Param::Piece& piece, const Values& values) {
  Values all = buffer.values();
  size_t next = 0;
  for_piece(buffer.tensor().shape, piece, [&](size_t i, size_t) { all[i] = values[next++]; });
  buffer.set(all);
}

RunModel::RunModel(const RunSpec& spec, const Mesh& mesh, std::shared_ptr<MeetingPoint> point)
    : spec_(spec), model_(build_model(spec, mesh)), groups_(std::move(point), mesh.slice) {
  install_kernels();
  const DType dtype = spec.precision.compute == Precision::bf16 ? DType::bf16 : DType::f32;
  for (const Param& p : model_.params) {
    std::vector<float> initial(size_t(p.local.elements()));
    initial_values(uint64_t(spec.train.seed), p, 0, initial);
    Values values(initial.begin(), initial.end());
    for (const Param::Piece& piece : p.pieces) {
      const Values noise = random_values(piece.logical.elements(), uint32_t(hash_text(piece.tensor)), kNoise);
      for_piece(p.local, piece, [&](size_t i, size_t logical) { values[i] += noise[logical]; });
    }
    params_.emplace_back(dtype, p.local, values);
    grads_.emplace_back(DType::f32, p.local);
  }
  filled_.resize(params_.size());
  acts_.resize(1);
  d_acts_.resize(1);
  for (const auto& block : model_.blocks) {
    const BlockLayout l = block->layout();
    blocks_.push_back({l, allocate(l.saved), allocate(l.stash), allocate(l.forward_work), allocate(l.backward_work),
                       allocate(l.cache)});
    if (l.out.empty()) continue;
    acts_.emplace_back(dtype, l.out[0]);
    d_acts_.emplace_back(dtype, l.out[0]);
  }
  logits_ = Buffer(DType::f32, {spec.train.micro_batch * spec.data.seq_len, padded_vocab(spec.model.vocab_size)});
}

void RunModel::load(const Sample& s) {
  const Values fields[kBatchFields] = {values_of(s.tokens),    values_of(s.targets),  values_of(s.weights),
                                       values_of(s.positions), values_of(s.segments), values_of(s.rows)};
  for (size_t f = 0; f < kBatchFields; ++f)
    batch_[f] = fields[f].empty() ? Buffer() : Buffer(kBatchDTypes[f], {int64_t(fields[f].size())}, fields[f]);
}

struct RunModel::Lists {
  std::vector<Tensor> in, out, d_in, d_out, params, saved, stash, work, cache;
  std::vector<Gradient> grads;
  Batch batch;
};

RunModel::Lists RunModel::lists_of(const Call& c) {
  const BlockBuffers& b = blocks_[c.block];
  const BlockLayout& l = b.layout;
  const bool forward = c.half == Half::forward || c.half == Half::recompute;
  const bool input = c.half == Half::backward_input, weight = c.half == Half::backward_weight;
  const bool head_trains = l.grads_in_forward && c.half == Half::forward && c.phase == Phase::train;
  Lists v;
  const bool reads_in = forward || (input && l.input_reads_in) || (weight && l.weight_reads_in);
  if (reads_in && !l.in.empty()) v.in = {acts_[c.block]};
  if (forward && c.give_out && !l.out.empty()) v.out = {acts_[c.block + 1]};
  if (is_head(c.block) && c.phase == Phase::generate) v.out = {logits_};
  if (!l.in.empty() && (input || head_trains)) v.d_in = {d_acts_[c.block]};
  if (!l.out.empty() && (input || (weight && l.weight_reads_d_out))) v.d_out = {d_acts_[c.block + 1]};
  for (ParamId id : l.params) v.params.push_back(params_[id]);
  if (weight || head_trains)
    for (ParamId id : l.params) v.grads.push_back({grads_[id], filled_[id]});
  v.saved = tensors_of(b.saved);
  if (!forward) v.stash = tensors_of(b.stash);
  if (forward) v.work = tensors_of(b.forward_work);
  if (input) v.work = tensors_of(b.backward_work);
  if (c.phase == Phase::generate) v.cache = tensors_of(b.cache);
  BatchMask mask = forward ? l.reads : input ? l.backward_input_reads : l.backward_weight_reads;
  if (c.phase == Phase::generate) mask |= field(BatchField::positions);
  for (int f = 0; f < kBatchFields; ++f)
    if (mask >> f & 1) v.batch.fields[size_t(f)] = batch_[size_t(f)];
  return v;
}

void RunModel::call(const Call& c) {
  const BlockLayout& l = blocks_[c.block].layout;
  const Lists v = lists_of(c);
  BlockContext context{device_.stream(), device_.stream(), groups_, c.phase, c.level, cache_position_};
  BlockViews views{v.in, v.out, v.d_in, v.d_out, v.params, v.saved, v.stash, v.work, v.cache, v.grads, {}, {}, v.batch};
  if (l.reads_control) views.control = make_tensor(reinterpret_cast<std::byte*>(&control), DType::u8, {sizeof control});
  if (l.adds_outcome) views.outcome = make_tensor(reinterpret_cast<std::byte*>(&outcome_), DType::f64, {6});
  const Block& block = *model_.blocks[c.block];
  switch (c.half) {
    case Half::forward: block.forward(context, views); break;
    case Half::recompute: block.recompute(context, views); break;
    case Half::backward_input: block.backward_input(context, views); break;
    case Half::backward_weight: block.backward_weight(context, views); break;
  }
  device_.drain();
  if (!v.grads.empty())
    for (ParamId id : l.params) filled_[id] = true;
}

void RunModel::forward(Phase phase) {
  outcome_ = {};
  for (size_t b = 0; b < blocks_.size(); ++b) call({b, Half::forward, phase});
}

void RunModel::drop_and_restore(size_t first, size_t last, RecomputeLevel level) {
  for (size_t b = first; b <= last; ++b)
    for (size_t i = 0; i < blocks_[b].saved.size(); ++i)
      if (drops(level, blocks_[b].layout.saved[i].keep)) blocks_[b].saved[i].fill(kNaN);
  const bool full = level == RecomputeLevel::full;
  if (full)
    for (size_t b = first; b < last; ++b) acts_[b + 1].fill(kNaN);
  for (size_t b = first; b <= last; ++b) call({b, Half::recompute, Phase::train, level, full && b < last});
}

void RunModel::backward(RecomputeLevel level) {
  for (size_t b = blocks_.size() - 1; b-- > 0;) {
    size_t first = b;
    while (first > 0 && model_.layer[first - 1] == model_.layer[b]) --first;
    const bool layer_begins = model_.layer[b] != model_.layer[b + 1];
    if (b > 0 && layer_begins && level != RecomputeLevel::none) drop_and_restore(first, b, level);
    if (blocks_[b].layout.has_input_half) call({b, Half::backward_input});
    if (blocks_[b].layout.has_weight_half) call({b, Half::backward_weight});
  }
}

Outcome RunModel::evaluate(const Sample& s) {
  load(s);
  forward(Phase::evaluate);
  return outcome_;
}

Outcome RunModel::train(const Sample& s, RecomputeLevel level, bool accumulate) {
  load(s);
  if (!accumulate) filled_.assign(filled_.size(), false);
  forward(Phase::train);
  backward(level);
  return outcome_;
}

Values RunModel::read_logits() const {
  const Values all = logits_.values();
  Values values;
  const int64_t V = spec_.model.vocab_size, Vp = padded_vocab(V);
  for (size_t i = 0; i < all.size(); ++i)
    if (int64_t(i) % Vp < V) values.push_back(all[i]);
  return values;
}

Values RunModel::logits(const Sample& s) {
  load(s);
  for (size_t b = 0; b < blocks_.size(); ++b) call({b, Half::forward, is_head(b) ? Phase::generate : Phase::evaluate});
  return read_logits();
}

Values RunModel::generate(std::span<const int32_t> tokens) {
  Values values;
  for (cache_position_ = 0; cache_position_ < int64_t(tokens.size()); ++cache_position_) {
    Sample s;
    s.tokens = {tokens[size_t(cache_position_)]};
    s.positions = {int32_t(cache_position_)};
    load(s);
    for (size_t b = 0; b < blocks_.size(); ++b) call({b, Half::forward, Phase::generate});
    const Values row = read_logits();
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

}  // namespace trainer::test
