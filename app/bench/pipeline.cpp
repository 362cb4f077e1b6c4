#include "app/bench/pipeline.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "app/bench/bench_device.h"
#include "app/bench/forked_ranks.h"
#include "app/bench/random_feed.h"
#include "app/rig.h"
#include "core/base/error.h"
#include "core/device/host_image.h"
#include "core/engine/engine.h"
#include "core/engine/initialise.h"
#include "core/plan/layout.h"
#include "parallel/planner.h"
#include "parallel/schedules/schedules.h"
#include "parallel/simulate.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  PipelineKind schedule;
  int chunks;
};
constexpr Pipe kPipes[] = {{PipelineKind::gpipe, 1},   {PipelineKind::one_f_one_b, 1}, {PipelineKind::interleaved, 2},
                           {PipelineKind::zb_h1, 1},   {PipelineKind::zb_h2, 1},       {PipelineKind::zb_v, 2},
                           {PipelineKind::zb_auto, 1}, {PipelineKind::dualpipe_v, 2}};

RunSpec spec_of(const Pipe& pipe, int stages) {
  RunSpec s;
  ModelSpec& m = s.model;
  m.num_layers = 2 * stages;
  m.hidden_size = 32;
  m.num_heads = m.num_kv_heads = 4;
  m.head_dim = 8;
  m.ffn_hidden_size = m.vocab_size = 64;
  m.max_seq_len = s.data.seq_len = 16;
  m.tie_embeddings = false;
  s.train.micro_batch = 1;
  s.train.global_batch.count = 2 * stages;
  s.train.steps = 100;
  s.precision.compute = Precision::fp32;
  s.parallel.pp = stages;
  s.parallel.pipeline.schedule = pipe.schedule;
  s.parallel.pipeline.virtual_stages = pipe.chunks;
  s.device.kind = DeviceChoice::cpu;
  return s;
}

// Big enough that kernels, not lanes, are what takes time.
RunSpec computing_spec(const Pipe& pipe, int stages) {
  RunSpec s = spec_of(pipe, stages);
  ModelSpec& m = s.model;
  m.num_layers = 4;
  m.hidden_size = 384;
  m.num_heads = m.num_kv_heads = 6;
  m.head_dim = 64;
  m.ffn_hidden_size = 1024;
  m.vocab_size = 512;
  m.max_seq_len = s.data.seq_len = 128;
  s.train.global_batch.count = 8;
  return s;
}

void sleep_for(double seconds) {
  thread_local const int slack = prctl(PR_SET_TIMERSLACK, 1UL);  // else Linux is up to 50 us late
  (void)slack;
  const auto nanoseconds = int64_t(seconds * 1e9);
  timespec t{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  while (nanosleep(&t, &t) != 0) {}
}

// A block's place in the plan without its arithmetic: each call takes its time on the lane, and no core.
class SleepingBlock final : public Block {
 public:
  SleepingBlock(std::unique_ptr<Block> inner, const Durations& durations, const Mesh& mesh, const Instr& like)
      : inner_(std::move(inner)) {
    for (size_t v = 0; v < kVerbs.size(); ++v) {
      Instr i = like;
      i.verb = kVerbs[v];
      seconds_[v] = durations.of(mesh, i);
    }
  }
  BlockLayout layout() const override { return inner_->layout(); }
  void forward(BlockContext& c, const BlockViews&) const override { sleep(c, 0); }
  void recompute(BlockContext& c, const BlockViews&) const override { sleep(c, 1); }
  void backward_input(BlockContext& c, const BlockViews&) const override { sleep(c, 2); }
  void backward_weight(BlockContext& c, const BlockViews&) const override { sleep(c, 3); }

 private:
  static constexpr std::array kVerbs{Verb::forward, Verb::recompute, Verb::backward_input, Verb::backward_weight};
  void sleep(BlockContext& c, size_t verb) const {
    c.compute.submit([](Stream&, const void* seconds) { sleep_for(*static_cast<const double*>(seconds)); },
                     &seconds_[verb], sizeof(double));
  }
  const std::unique_ptr<Block> inner_;
  std::array<double, kVerbs.size()> seconds_{};
};

// What instructions took in a run of one rank.
class TimedBlocks final : public Durations {
 public:
  double of(const Mesh&, const Instr& i) const override {
    const auto it = seconds_.find({i.verb, i.block, i.bucket});
    return it == seconds_.end() ? 0 : it->second;
  }
  void add(const Plan& plan, const std::vector<Span>& spans, double weight) {
    std::map<std::tuple<Verb, int16_t, int16_t>, int> calls;
    for (const Instr& i : plan.code) ++calls[{i.verb, i.block, i.bucket}];
    for (size_t id = 0; id < plan.code.size(); ++id) {
      const Instr& i = plan.code[id];
      if (i.lane == Lane::compute && i.verb != Verb::agree)
        seconds_[{i.verb, i.block, i.bucket}] +=
            weight * (spans[id].end - spans[id].begin) / calls[{i.verb, i.block, i.bucket}];
    }
  }

 private:
  std::map<std::tuple<Verb, int16_t, int16_t>, double> seconds_;
};

// Memory of the parent that its ranks write to.
template <class T>
class Shared {
 public:
  explicit Shared(size_t count) : count_(count) {
    void* at = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(at != MAP_FAILED, Exit::memory, "[bench] no page to share");
    values_ = static_cast<T*>(at);
  }
  ~Shared() { munmap(values_, count_ * sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* values() const { return values_; }

 private:
  size_t count_;
  T* values_ = nullptr;
};

Control control_of(int64_t step) {
  return {.step = step, .seed = 1, .lr = 1e-4f, .bias1 = 1, .bias2 = 1, .max_norm = 1, .factor = 0, .skip = 0};
}

struct Prepared {  // of a rank
  Rig rig;
  RandomFeed feed;
  Engine engine;
  Prepared(Planned planned, Exchange& exchange)
      : rig(open_rig(std::move(planned), exchange)),
        feed(rig.planned.spec),
        engine(rig.planned.program, rig.planned.spec, rig.planned.mesh, rig.planned.model,
               {*rig.device, rig.groups(), feed}) {
    HostImage state(*rig.device, static_bytes(rig.planned.program));
    initialise_state(rig.planned.program, rig.planned.model, 1, state.bytes());
    state.store();
  }
  const Plan& plan(const PlanKey& key) const { return *find_plan(rig.planned.program, key); }
  void step(const PlanKey& key, int step) {
    engine.step(key, control_of(step));
    rig.device->drain();
  }
};

using Aside = std::function<void(int step)>;  // what a rank does before each of its steps

// A rank's steps, in step with the others, each after `aside`; returns the median of the timed ones.
double median_step(Prepared& rank, Exchange& exchange, const PlanKey& key, int steps, const Aside& aside) {
  std::vector<double> seconds;
  for (int step = 0; step <= steps; ++step) {
    exchange.all_gather("aside");
    aside(step);
    exchange.all_gather("begin");
    const auto begin = Clock::now();
    rank.step(key, step);
    if (step > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// From step to step, where each is begun before the one before it is agreed on.
double step_ahead(Prepared& rank, Exchange& exchange, const PlanKey& key, int steps) {
  exchange.all_gather("begin");
  rank.engine.begin(key, control_of(0));
  auto first = Clock::now(), last = first;
  for (int step = 1; step <= steps + 1; ++step) {
    rank.engine.begin(key, control_of(step));
    rank.engine.finish();
    (step == 1 ? first : last) = Clock::now();
  }
  rank.engine.finish();
  rank.rig.device->drain();
  return std::chrono::duration<double>(last - first).count() / steps;
}

// What the host takes to issue an instruction, in seconds.
double issue_seconds(Prepared& rank, Exchange& exchange, const PlanKey& key) {
  exchange.all_gather("issue");
  const auto begin = Clock::now();
  rank.engine.issue_plan(key, control_of(0));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  rank.rig.device->drain();
  return seconds / double(rank.plan(key).code.size());
}

struct Measured {
  double step = 0;   // the slowest rank's median
  double issue = 0;  // of an instruction, the slowest rank's
};

std::vector<BenchRow> rows_of(const RunSpec& spec, const Measured& found, double clocked) {
  const PipelineSpec& pipe = spec.parallel.pipeline;
  const std::string name = fmt::format("{}, {} stages, {} micro-batches{}", find_schedule(pipe).name, spec.parallel.pp,
                                       spec.train.global_batch.count, pipe.post_validation ? ", ahead" : "");
  return {{name, 1e3 * found.step, "ms", 1e3 * clocked},
          {"  the host's time for an instruction", 1e6 * found.issue, "us", std::nullopt}};
}

double clocked(const RunSpec& spec, const Planned& p, const PlanKey& key, const Durations& durations) {
  const std::vector<Program> stages = make_stage_programs({spec, p.model, p.mesh.size(), {key}});
  const Timeline t = clock_world(world_of_stages(spec, p.model, p.mesh, stages), key, durations);
  return key.kind == StepKind::train_ahead ? t.span : t.makespan;
}

struct Changes {
  std::function<void(Planned&)> plan = [](Planned&) {};
  std::function<Aside(int rank)> aside = [](int) { return [](int) {}; };
};
Measured measure_steps(const RunSpec& spec, int steps, const Changes& changes) {
  const int ranks = int(spec.parallel.pp);
  const Shared<Measured> of_ranks(static_cast<size_t>(ranks));
  run_forked(ranks, [&](Exchange& exchange) {
    Planned planned = plan_run(spec, ranks, exchange.rank());
    changes.plan(planned);
    Prepared rank(std::move(planned), exchange);
    const PlanKey key = usual_key(spec, 1);
    Measured& own = of_ranks.values()[exchange.rank()];
    own.step = key.kind == StepKind::train_ahead
                   ? step_ahead(rank, exchange, key, steps)
                   : median_step(rank, exchange, key, steps, changes.aside(exchange.rank()));
    own.issue = issue_seconds(rank, exchange, key);
    exchange.all_gather("over");
  });
  Measured most;
  for (int r = 0; r < ranks; ++r) {
    most.step = std::max(most.step, of_ranks.values()[r].step);
    most.issue = std::max(most.issue, of_ranks.values()[r].issue);
  }
  return most;
}

std::vector<BenchRow> sleeping(const Pipe& pipe, int stages_count, const PipelineBenchOptions& o) {
  RunSpec spec = spec_of(pipe, stages_count);
  spec.parallel.pipeline.post_validation = o.ahead;
  const PlanKey key = usual_key(spec, 1);
  const double each = o.milliseconds * 1e-3;
  const Planned p = plan_run(spec, stages_count, 0);
  const Stages stages(spec, p.model, find_schedule(spec.parallel.pipeline), key.microbatches);
  const UniformDurations durations(stages, p.model, {.f = each, .b = each, .w = each, .recompute = each});
  const auto fall_asleep = [&](Planned& planned) {
    for (size_t b = 0; b < planned.model.blocks.size(); ++b) {
      const Stages::Place at = stages.owner(stages.position_of(int(b)));
      const Instr like{.verb = Verb::forward, .chunk = int16_t(at.chunk), .block = int16_t(b)};
      auto& block = planned.model.blocks[b];
      block = std::make_unique<SleepingBlock>(std::move(block), durations, planned.mesh.at_stage(at.stage), like);
    }
  };
  const Measured found = measure_steps(spec, o.steps, {.plan = fall_asleep});
  return rows_of(spec, found, clocked(spec, p, key, durations));
}

// Blocks timed in steps of a world of one, whose spans are kept.
class BlockTimer {
 public:
  BlockTimer(const RunSpec& alone, const PlanKey& key, Span* spans)
      : rank_(plan_run(alone, 1, 0), alone_), key_(key), spans_(spans) {}
  void step(int step) {
    rank_.step(key_, step);
    if (step > 0) spans_ = std::ranges::copy(rank_.engine.spans(key_), spans_).out;
  }

 private:
  SoloExchange alone_;
  Prepared rank_;
  const PlanKey key_;
  Span* spans_;
};

// Before each step of the pipeline both ranks time the blocks, each with half the micro-batches of the whole model: as
// two stages will, they share the memory, and the speed of the machine drifts.
std::vector<BenchRow> computing(const Pipe& pipe, int steps) {
  const RunSpec spec = computing_spec(pipe, 2);
  const PlanKey key = train_key(spec, spec.train.global_batch.count, 1);
  const Planned p = plan_run(spec, 2, 0);
  RunSpec alone = computing_spec({PipelineKind::one_f_one_b, 1}, 1);
  alone.train.global_batch.count /= 2;
  alone.log.trace = true;
  const PlanKey alone_key = train_key(alone, alone.train.global_batch.count, 1);
  const Planned whole = plan_run(alone, 1, 0);
  const Plan& plan = *find_plan(whole.program, alone_key);
  const size_t n = plan.code.size(), of_rank = n * size_t(steps);
  const Shared<Span> spans(2 * of_rank);
  const auto time_blocks = [&](int rank) -> Aside {
    auto timer = std::make_shared<BlockTimer>(alone, alone_key, spans.values() + of_rank * size_t(rank));
    return [timer](int step) { timer->step(step); };
  };
  const Measured found = measure_steps(spec, steps, {.aside = time_blocks});
  TimedBlocks times;
  for (Span* s = spans.values(); s != spans.values() + 2 * of_rank; s += n) times.add(plan, {s, s + n}, 0.5 / steps);
  return rows_of(spec, found, clocked(spec, p, key, times));
}

}  // namespace

std::vector<BenchRow> bench_pipeline(const PipelineBenchOptions& o) {
  RunSpec device = bench_spec("cpu", "fp32");
  device.device.threads = 1;  // a rank has a core: two workers on it would spin for each other
  choose_device(device);
  std::vector<BenchRow> rows;
  if (o.compute) {
    for (const Pipe& pipe : kPipes) std::ranges::copy(computing(pipe, o.steps), std::back_inserter(rows));
    return rows;
  }
  for (int stages : o.stages)
    for (const Pipe& pipe : kPipes) std::ranges::copy(sleeping(pipe, stages, o), std::back_inserter(rows));
  return rows;
}

}  // namespace trainer
