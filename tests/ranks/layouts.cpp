#include "tests/ranks/layouts.h"

#include <fmt/format.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <mutex>

#include "app/checkpoints.h"
#include "app/rig.h"
#include "app/step_runner.h"
#include "app/wire.h"
#include "core/device/host_image.h"
#include "core/engine/engine.h"
#include "core/engine/initialise.h"
#include "core/plan/layout.h"
#include "parallel/schedules/schedules.h"
#include "tests/ranks/sequence_feed.h"
#include "tests/support/ranks.h"

namespace trainer::test {
namespace {

// Adds a rank's elements; those that another rank has added must be the same bits.
class Assembly {
 public:
  void add(const std::vector<NamedBox>& boxes) {
    const std::scoped_lock lock(mutex_);
    for (const NamedBox& b : boxes) {
      if (b.tensor.starts_with(kOptimizerPrefix)) continue;
      auto& values = weights_[b.tensor];
      values.resize(size_t(b.logical.elements()), std::nanf(""));
      const Rectangle r = rectangle_of(b.box, b.logical.rank);
      const int64_t width = b.logical.rank == 2 ? b.logical[1] : b.logical[0];
      for (int64_t i = 0; i < r.rows(); ++i)
        for (int64_t k = 0; k < r.columns(); ++k) {
          float& at = values[size_t((r.row_begin + i) * width + r.column_begin + k)];
          const float value = data_as<float>(b.values)[i * b.values.stride() + k];
          if (!std::isnan(at) && std::bit_cast<uint32_t>(at) != std::bit_cast<uint32_t>(value)) differing_ = b.tensor;
          at = value;
        }
    }
  }
  void note(const std::string& wrong) {
    const std::scoped_lock lock(mutex_);
    wrong_ += wrong;
  }
  std::string differing() const { return differing_; }
  std::string wrong() const { return wrong_; }
  auto take() { return std::move(weights_); }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<float>> weights_;
  std::string differing_, wrong_;
};

// What the communicators moved is what the plan counts, to the byte.
std::string wrong_traffic(const Rig& rig) {
  std::map<std::string, int64_t, std::less<>> planned;
  for (const auto& [what, count] : step_counts(rig.planned).collectives)
    planned[what.substr(0, what.find(' '))] += count.moved * kSteps;
  std::string wrong;
  for (int a = 0; a < kAxes; ++a) {
    int64_t moved = 0;
    for (int l = 0; l < kLanes; ++l) moved += rig.traffic().bytes(Axis(a), Lane(l));
    const auto name = std::string(name_of(Axis(a)));
    if (moved != planned[name])
      wrong += fmt::format("{}: rank {} moved {} bytes, the plan says {}\n", name, rig.planned.mesh.rank(), moved,
                           planned[name]);
  }
  return wrong;
}

Outcomes run_rank(const RunSpec& spec, Exchange& exchange, Assembly& assembly) {
  claim_device(spec.device, exchange.rank(), exchange.size());
  Rig rig = open_rig(plan_run(spec, exchange.size(), exchange.rank()), exchange);
  const Planned& p = rig.planned;
  HostImage state(*rig.device, static_bytes(p.program));
  initialise_state(p.program, p.model, uint64_t(spec.train.seed), state.bytes());
  state.store();
  SequenceFeed feed(p.spec, p.mesh);
  feed.stage_in(rig.staging(), staging_turns(rig.planned.program));
  Outcomes out;
  Engine engine(p.program, p.spec, p.mesh, p.model, {*rig.device, rig.groups(), feed});
  const StepSizes sizes(p.spec);
  StepRunner runner(engine, p, sizes, kSteps, 0);
  for (int64_t step = 0; step < kSteps; ++step) out.steps.push_back(runner.run(step, step + 1 == kSteps));
  out.taken_back = runner.taken_back();
  rig.device->drain();
  if (!updates_ahead(p.program)) assembly.note(wrong_traffic(rig));
  state.fetch();
  assembly.add(boxes_of(state_view(p.program, p.model, state.bytes())));
  exchange.all_gather("done");  // nobody unmaps what a peer may still read
  return out;
}

}  // namespace

std::string Layout::name() const {
  constexpr const char* kRecompute[] = {"none", "selective", "full", "every"};
  const std::string pipe =
      pp == 1 ? "" : fmt::format(" pp{}x{} {}", pp, chunks, find_schedule(spec_of(*this).parallel.pipeline).name);
  return fmt::format("{} tp{}{} dp{} zero{}{} acc{}{} {}{}{}{}{} l{} kv{} v{} f{} d{}{}{}{}",
                     family == Family::gpt2 ? "gpt2" : "llama", tp, sequence_parallel ? "+sp" : "", dp, zero,
                     zero_shard ? fmt::format("/{}", zero_shard) : "", accumulation, pipe, kRecompute[int(recompute)],
                     tied ? " tied" : "", compute == Precision::bf16 ? " bf16" : "",
                     gradients == Precision::bf16 ? " gradients bf16" : "",
                     reduce == Precision::bf16 ? " reduce bf16" : "", layers, kv_heads, vocab, ffn, head_dim,
                     dropout > 0 ? " dropout" : "", device == DeviceChoice::cuda ? " cuda" : "",
                     graph ? " graph" : "") +
         (ahead ? fmt::format(" ahead, clip {}", clip) : "");
}

RunSpec spec_of(const Layout& l) {
  RunSpec s;
  ModelSpec& m = s.model;
  const bool gpt2 = l.family == Family::gpt2;
  m.family = l.family;
  m.num_layers = l.layers;
  m.num_heads = 4;
  m.num_kv_heads = gpt2 ? 4 : l.kv_heads;
  m.head_dim = l.head_dim;
  m.hidden_size = 32;
  m.ffn_hidden_size = l.ffn;
  m.vocab_size = l.vocab;
  m.max_seq_len = s.data.seq_len = 17;
  m.tie_embeddings = l.tied;
  m.qkv_bias = gpt2;
  m.dropout = l.dropout;
  s.train.steps = kSteps;
  s.train.micro_batch = 2;
  s.train.global_batch.count = 2 * l.dp * l.accumulation;
  s.optimizer.lr = 1e-3;  // steps large enough to see, small enough that rounding does not grow
  s.precision.compute = l.compute;
  s.precision.gradients = l.gradients;
  s.precision.reduce = l.reduce;
  s.parallel.tp = l.tp;
  s.parallel.dp = l.dp;
  s.parallel.pp = l.pp;
  s.parallel.pipeline.schedule = l.schedule;
  s.parallel.pipeline.virtual_stages = l.chunks;
  s.parallel.pipeline.post_validation = l.ahead;
  s.train.clip = l.clip;
  s.parallel.sequence_parallel = l.sequence_parallel;
  s.parallel.zero = l.zero;
  if (l.zero_shard) s.parallel.zero_shard = l.zero_shard;
  s.memory.recompute = {l.recompute, 2};
  s.device.threads = 1;
  s.device.kind = l.device;
  if (!l.heuristics.empty()) s.device.heuristics = l.heuristics;
  s.device.cuda_graph = l.graph;
  s.device.fallback = true;  // narrow heads in bf16
  return s;
}

Outcomes run(const Layout& layout) {
  const RunSpec spec = spec_of(layout);
  install_device(spec);
  Assembly assembly;
  std::vector<Outcomes> reports(size_t(layout.ranks()));
  run_ranks(
      layout.ranks(),
      [&](Exchange& exchange) { reports[size_t(exchange.rank())] = run_rank(spec, exchange, assembly); },
      std::chrono::seconds(120));
  Outcomes first = std::move(reports[0]);
  for (size_t rank = 1; rank < reports.size(); ++rank)
    for (size_t step = 0; step < kSteps; ++step) {
      const StepReport &own = reports[rank].steps[step], &theirs = first.steps[step];
      REQUIRE(std::bit_cast<uint64_t>(own.loss) == std::bit_cast<uint64_t>(theirs.loss));
      REQUIRE(std::bit_cast<uint64_t>(own.grad_norm) == std::bit_cast<uint64_t>(theirs.grad_norm));
    }
  INFO("held differently by two ranks");
  REQUIRE(assembly.differing() == "");
  REQUIRE(assembly.wrong() == "");
  first.weights = assembly.take();
  return first;
}

}  // namespace trainer::test
