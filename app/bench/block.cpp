// One layer, operation by operation: forward, then both halves of backward, with online-softmax or naive attention.
#include <fmt/format.h>

#include <fstream>

#include "app/bench/bench.h"
#include "app/bench/bench_device.h"
#include "app/bench/naive_attention.h"
#include "app/bench/roof.h"
#include "app/bench/timing_stream.h"
#include "app/wire.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/mesh.h"

namespace trainer {
namespace {

RunSpec one_layer(const BlockBenchOptions& o) {
  check(o.family == "gpt2" || o.family == "llama", Exit::usage, "--family: wanted gpt2 or llama, found '{}'", o.family);
  RunSpec spec = bench_spec(o.device, o.dtype);
  ModelSpec& m = spec.model;
  m.family = o.family == "gpt2" ? Family::gpt2 : Family::llama;
  m.num_layers = 1;
  m.hidden_size = o.hidden;
  m.num_heads = o.heads;
  m.num_kv_heads = o.kv_heads > 0 ? o.kv_heads : o.heads;
  m.head_dim = o.hidden / o.heads;
  m.ffn_hidden_size = o.ffn;
  m.vocab_size = 64;  // embedding and head are not looked at
  m.max_seq_len = spec.data.seq_len = o.seq_len;
  m.tie_embeddings = m.qkv_bias = o.family == "gpt2";
  spec.train.micro_batch = o.batch;
  spec.train.global_batch = {o.batch, false};
  return spec;
}

// Replaces the attention operations by their naive forms.
class NaiveStream final : public TimingStream {
 public:
  NaiveStream(Stream& inner, Stopwatch& watch, Tensor scores, Tensor d_scores)
      : TimingStream(inner, watch), scores_(scores), d_scores_(d_scores) {}
  void submit(void (*run)(Stream&, const void*), const void* args, size_t bytes) override {
    const NamedPart timed = [this](const char* name, Cost cost, const std::function<void()>& launches) {
      part(name, cost, launches);
    };
    if (charged() == Attention::kName) naive_attention(inner(), *static_cast<const Attention*>(args), scores_, timed);
    else if (charged() == AttentionGrad::kName)
      naive_attention_grad(inner(), *static_cast<const AttentionGrad*>(args), scores_, d_scores_, timed);
    else TimingStream::submit(run, args, bytes);
  }

 private:
  Tensor scores_, d_scores_;
};

// Buffers of one block's call, as its layout asks for them.
struct BlockBuffers {
  std::vector<Tensor> in, out, d_in, d_out, params, saved, stash, forward_work, backward_work;
  std::vector<Gradient> grads;
  BlockBuffers(OpRunner& runner, const Model& model, const BlockLayout& l) {
    const auto all = [&](const std::vector<Buffer>& from) {
      std::vector<Tensor> v;
      for (const Buffer& b : from) v.push_back(runner.take(b.dtype, b.shape));
      return v;
    };
    for (const Shape& s : l.in) in.push_back(runner.take(l.dtype, s)), d_in.push_back(runner.take(l.dtype, s));
    for (const Shape& s : l.out) out.push_back(runner.take(l.dtype, s)), d_out.push_back(runner.take(l.dtype, s));
    for (ParamId id : l.params) {
      params.push_back(runner.take(l.dtype, model.params[id].local));
      grads.push_back({runner.take(DType::f32, model.params[id].local), false});
    }
    saved = all(l.saved);
    stash = all(l.stash);
    forward_work = all(l.forward_work);
    backward_work = all(l.backward_work);
  }
  BlockViews views(bool forward) const {
    BlockViews v;
    v.in = in;
    v.out = out;
    v.d_in = d_in;
    v.d_out = d_out;
    v.params = params;
    v.saved = saved;
    v.stash = stash;
    v.work = forward ? forward_work : backward_work;
    v.grads = grads;
    return v;
  }
};

// What BlockBuffers takes for a layer.
size_t bytes_of(const Model& model) {
  size_t bytes = 0;
  const auto add = [&](DType dtype, const Shape& shape, size_t times = 1) {
    bytes += times * (size_t(shape.elements()) * size_of(dtype) + 128);
  };
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    if (model.layer[b] != 0) continue;
    const BlockLayout l = model.blocks[b]->layout();
    for (const auto* streams : {&l.in, &l.out})
      for (const Shape& s : *streams) add(l.dtype, s, 2);
    for (const auto* buffers : {&l.saved, &l.stash, &l.forward_work, &l.backward_work})
      for (const Buffer& buffer : *buffers) add(buffer.dtype, buffer.shape);
    for (ParamId id : l.params) add(l.dtype, model.params[id].local), add(DType::f32, model.params[id].local);
  }
  return bytes;
}

void run_layer(const Model& model, OpRunner& runner, TimingStream& stream, Groups& groups) {
  BlockContext context{.compute = stream, .side = stream, .groups = groups};
  std::vector<std::pair<const Block*, BlockBuffers>> blocks;
  for (size_t b = 0; b < model.blocks.size(); ++b)
    if (model.layer[b] == 0)
      blocks.emplace_back(model.blocks[b].get(), BlockBuffers(runner, model, model.blocks[b]->layout()));
  const auto pass = [&](bool forward, auto call) {
    for (auto& [block, buffers] : blocks) {
      const size_t first = stream.parts().size();
      const BlockViews views = buffers.views(forward);
      call(*block, views);
      for (size_t i = first; i < stream.parts().size(); ++i)
        stream.parts()[i].name =
            (forward ? "forward " : "backward ") + block->layout().name.substr(9) + ": " + stream.parts()[i].name;
    }
  };
  for (int round = 0; round < 2; ++round) {  // the first warms up
    stream.parts().clear();
    pass(true, [&](const Block& b, const BlockViews& v) { b.forward(context, v); });
    pass(false, [&](const Block& b, const BlockViews& v) {
      b.backward_input(context, v);
      b.backward_weight(context, v);
    });
  }
}

void write_trace(const std::string& path, const std::vector<TimedPart>& parts) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const TimedPart& p : parts)
    events.push_back({{"name", p.name},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", 0},
                      {"ts", p.begin * 1e6},
                      {"dur", p.seconds * 1e6},
                      {"args", {{"flops", p.cost.flops}, {"bytes", p.cost.bytes}}}});
  std::ofstream out(path);
  out << nlohmann::ordered_json{{"traceEvents", events}}.dump();
  check(out.good(), Exit::disk, "{}: cannot be written", path);
}

}  // namespace

std::vector<BenchRow> bench_block(const BlockBenchOptions& o) {
  check(o.attention == "flash" || o.attention == "naive", Exit::usage, "--attention: wanted flash or naive, found '{}'",
        o.attention);
  const RunSpec spec = one_layer(o);
  choose_device(spec);
  const bool naive = o.attention == "naive";
  check(!naive || device_kind(spec.device) == DeviceKind::cpu, Exit::usage, "--attention: naive runs on a CPU only");
  const DType dtype = bench_dtype(spec);
  const Model model = build_model(spec, Mesh{});
  double roof = 0, copies = 0;
  {
    const int64_t size = roof_size(spec.device, o.roof_size);
    OpRunner runner(spec.device, roof_bytes(size, dtype));
    roof = matmul_roof(runner, dtype, size);
    runner.reset();
    copies = copy_roof(runner, dtype, size);
  }
  const size_t squares = naive ? size_t(o.batch * o.heads * o.seq_len * o.seq_len) * size_of(dtype) : 0;
  OpRunner runner(spec.device, bytes_of(model) + 2 * squares + 1024);
  const auto groups = open_solo_groups();
  const Shape square{o.batch * o.heads, o.seq_len, o.seq_len};
  Stream& inner = runner.stream();
  const auto stream =
      naive ? std::unique_ptr<TimingStream>(new NaiveStream(inner, runner.stopwatch(), runner.take_zero(dtype, square),
                                                            runner.take_zero(dtype, square)))
            : std::make_unique<TimingStream>(inner, runner.stopwatch());
  run_layer(model, runner, *stream, *groups);
  std::vector<BenchRow> rows;
  double seconds = 0, flops = 0;
  for (const TimedPart& p : stream->parts()) {
    rows.push_back({p.name + ", time", 1e3 * p.seconds, "ms", std::nullopt});
    if (p.cost.flops / p.cost.bytes > 16)
      rows.push_back({p.name + ", " + fmt::format("{:.2f} GFLOP", p.cost.flops * 1e-9), p.cost.flops / p.seconds * 1e-9,
                      "GFLOP/s", roof});
    else
      rows.push_back({p.name + ", " + fmt::format("{:.1f} MB", p.cost.bytes * 1e-6), p.cost.bytes / p.seconds * 1e-9,
                      "GB/s", copies});
    seconds += p.seconds;
    flops += p.cost.flops;
  }
  rows.push_back({"the layer", 1e3 * seconds, "ms", std::nullopt});
  rows.push_back({"the layer, " + fmt::format("{:.1f} GFLOP", flops * 1e-9), flops / seconds * 1e-9, "GFLOP/s", roof});
  if (naive) rows.push_back({"bytes that only stored scores need", 2 * double(squares) * 1e-6, "MB", std::nullopt});
  if (!o.trace.empty()) write_trace(o.trace, stream->parts());
  return rows;
}

}  // namespace trainer
