// Whole training steps through plan, arena and engine, on random tokens, so that no data set is needed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/bench/bench.h"
#include "app/bench/bench_device.h"
#include "app/bench/random_feed.h"
#include "app/bench/roof.h"
#include "app/rig.h"
#include "app/wire.h"
#include "core/device/host_image.h"
#include "core/engine/engine.h"
#include "core/engine/initialise.h"
#include "core/plan/layout.h"
#include "core/spec/read.h"

namespace trainer {
namespace {

double roof_of(const RunSpec& spec, int64_t wanted) {
  const int64_t size = roof_size(spec.device, wanted);
  OpRunner runner(spec.device, roof_bytes(size, bench_dtype(spec)));
  return matmul_roof(runner, bench_dtype(spec), size);
}

struct StepTime {
  double seconds = 0, kernels = 0;  // wall, and of it the compute lane's kernels
};

StepTime time_step(Engine& engine, Rig& rig, const PlanKey& key, int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  const auto busy = [&] { return rig.device->times(Lane::compute).value_or(LaneTimes{}).busy; };
  const double before = busy();
  Control control{.step = step, .seed = 1, .lr = 1e-4f, .bias1 = 1, .bias2 = 1, .max_norm = 1, .factor = 0, .skip = 0};
  engine.step(key, control);
  rig.device->drain();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), busy() - before};
}

}  // namespace

std::vector<BenchRow> bench_step(const StepBenchOptions& o) {
  RunSpec spec = load_spec(o.config, o.overrides);
  spec.data.split = std::nullopt;
  spec.data.valid.clear();
  choose_device(spec);
  const double roof = roof_of(spec, o.roof_size);
  Rig rig = open_rig(plan_run(spec, 1, 0));
  for (const std::string& note : rig.transport.notes) fmt::print(stderr, "{}\n", note);
  const Planned& p = rig.planned;
  HostImage state(*rig.device, static_bytes(p.program));
  initialise_state(p.program, p.model, 1, state.bytes());
  state.store();
  RandomFeed feed(p.spec);
  feed.stage_in(rig.staging(), staging_turns(rig.planned.program));
  Engine engine(p.program, p.spec, p.mesh, p.model, {*rig.device, rig.groups(), feed});
  const PlanKey key = plan_keys(p.spec, 1).front();
  time_step(engine, rig, key, 0);
  std::vector<StepTime> times;
  for (int i = 0; i < o.steps; ++i) times.push_back(time_step(engine, rig, key, i + 1));
  std::sort(times.begin(), times.end(), [](const StepTime& a, const StepTime& b) { return a.seconds < b.seconds; });
  const double tokens = double(key.microbatches * p.spec.train.micro_batch * key.seq_len);
  const FlopsPerToken flops = flops_per_token(p.spec.model, key.seq_len);
  const StepTime best = times.front(), median = times[times.size() / 2];
  std::vector<BenchRow> rows{
      {"tokens per second, best", tokens / best.seconds, "tokens/s", std::nullopt},
      {"tokens per second, median", tokens / median.seconds, "tokens/s", std::nullopt},
      {"6N + 12 L C T, best", tokens * flops.simple / best.seconds * 1e-9, "GFLOP/s", roof},
      {"6N + 12 L C T, median", tokens * flops.simple / median.seconds * 1e-9, "GFLOP/s", roof},
      {"products, attention in full, best", tokens * flops.exact_full / best.seconds * 1e-9, "GFLOP/s", roof},
      {"products, attention as the mask leaves it, best", tokens * flops.exact_causal / best.seconds * 1e-9, "GFLOP/s",
       roof},
      {"step, median", 1e3 * median.seconds, "ms", std::nullopt}};
  if (rig.device->kind() == DeviceKind::cpu)  // a GPU does not time single kernels
    rows.push_back({"outside kernels, median", 100 * (1 - median.kernels / median.seconds), "%", std::nullopt});
  const auto mib = [](size_t bytes) { return double(bytes) / double(1 << 20); };
  rows.push_back({"arena", mib(rig.arena().size()), "MiB", mib(p.program.arena_bytes)});
  if (rig.device->kind() == DeviceKind::cuda) {
    const GpuMemory memory = gpu_memory();
    rows.push_back({"memory of the GPU beside the arena, and the reserve for it", mib(memory.used - rig.arena().size()),
                    "MiB", mib(memory.reserve)});
  }
  return rows;
}

}  // namespace trainer
