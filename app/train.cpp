#include "app/train.h"

#include <fmt/format.h>

#include <set>

#include "app/checkpoints.h"
#include "app/connect.h"
#include "app/journal.h"
#include "app/process_stats.h"
#include "app/rig.h"
#include "app/signals.h"
#include "app/step_clock.h"
#include "app/step_control.h"
#include "app/step_runner.h"
#include "app/step_trace.h"
#include "app/vocabulary.h"
#include "app/wire.h"
#include "core/engine/engine.h"
#include "core/spec/print.h"
#include "io/failpoints.h"
#include "io/feed.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// One attempt at a run: everything it holds, in the order it is opened.
class Attempt {
 public:
  Attempt(const LoadedSpec& loaded, const Place& place, Exchange& exchange, const std::string& device)
      : spec_(loaded.spec),
        exchange_(exchange),
        reports_(place.rank == 0),
        directory_(spec_, reports_),
        rig_(open_rig(plan_run(spec_, place.world, place.rank), exchange)),
        total_(total_steps(spec_)),
        feed_(open_dataset(spec_.data, spec_.model.vocab_size), spec_,
              {rig_.planned.mesh.replica, rig_.planned.mesh.dp}),
        checkpoints_(rig_, exchange_, directory_.checkpoints(), tokenizer_description(spec_.data)),
        engine_(rig_.planned.program, spec_, rig_.planned.mesh, rig_.planned.model,
                {*rig_.device, rig_.groups(), feed_, nullptr, &stop_signal()}),
        steps_(engine_, rig_.planned, feed_.sizes(), total_),
        at_(start()),
        journal_(directory_, spec_,
                 {flops_per_token(spec_.model, spec_.data.seq_len), rig_.planned.program.arena_bytes, at_.step, total_},
                 reports_),
        clock_(*rig_.device, rig_.traffic()) {
    feed_.stage_in(rig_.staging(), staging_turns(rig_.planned.program));
    if (reports_) directory_.write("resolved.yaml", resolved_yaml(loaded));
    announce(device);
  }

  ~Attempt() {
    engine_.drop_graphs();
    rig_.device.reset();  // its lanes may still wait for the feed
  }

  Exit run() {
    clock_.restart();
    while (at_.step < total_) {
      step();
      if (steps_.begun()) continue;
      if (due(spec_.train.eval_every) && !stop_) evaluate();
      if (due(spec_.checkpoint.every)) save();
      if (stop_ && at_.step < total_) return preempt();
    }
    if (saved_ != at_.step) save();
    trace();
    if (steps_.taken_back() > 0)
      journal_.say(fmt::format("{} updates were taken back, for they should have been clipped", steps_.taken_back()));
    check_memory();
    journal_.event("end", at_.step, {{"exit", int(Exit::done)}});
    return Exit::done;
  }

 private:
  Position start() {
    if (const auto found = checkpoints_.restore()) {
      saved_ = found->step;
      return *found;
    }
    if (spec_.checkpoint.init_from) checkpoints_.load_weights(*spec_.checkpoint.init_from);
    else checkpoints_.initialise(uint64_t(spec_.train.seed));
    return {};
  }

  void announce(const std::string& device) {
    const Program& program = rig_.planned.program;
    nlohmann::ordered_json refused = nlohmann::ordered_json::array();
    for (const Refusal& r : checkpoints_.refused()) refused.push_back({{"step", r.step}, {"why", r.why}});
    journal_.event("start", at_.step);
    if (at_.step > 0 || !refused.empty()) journal_.event("resume", at_.step, {{"refused", refused}});
    journal_.say(fmt::format("{}: {} parameters, arena {}, allowance {}, {}", directory_.path(),
                             short_number(double(parameter_count(rig_.planned.model))),
                             short_bytes(double(program.arena_bytes)), short_bytes(double(kAllowanceBytes)), device));
    for (const std::string& note : rig_.transport.notes) journal_.say(note);
    for (const Refusal& r : checkpoints_.refused())
      journal_.say(fmt::format("refused checkpoint step-{}: {}", r.step, r.why));
    if (at_.step > 0)
      journal_.say(
          fmt::format("resumed from step {} ({} tokens), state {:016x}", at_.step, at_.tokens, at_.state_hash));
  }

  // Step numbers in messages count from 1: step N is the N-th update.
  bool due(const std::optional<int64_t>& every) const { return due(every, at_.step); }
  bool due(const std::optional<int64_t>& every, int64_t step) const {
    return every && (step % *every == 0 || step == total_);
  }
  // What comes after the next step needs the state as it leaves it.
  bool next_is_alone() const {
    const int64_t then = at_.step + 1;
    return stop_ || then == total_ || due(spec_.train.eval_every, then) || due(spec_.checkpoint.every, then);
  }

  void step() {
    const FailSite site{.step = at_.step + 1, .rank = exchange_.rank()};
    failpoint("step_begin", site);
    StepRecord record;
    record.report = steps_.run(at_.step, next_is_alone());
    if (failpoint("gradient", {.step = site.step}).nan) record.report.finite = false;
    if (!record.report.finite) stop_not_finite();
    at_.tokens += int64_t(record.report.tokens);
    at_.data_hash = record.report.data_hash;
    stop_ = record.report.stop;
    ++at_.step;
    record.report.step = at_.step;
    record.lr = steps_.control(at_.step - 1).lr;
    record.tokens = at_.tokens;
    clock_.split(record);
    journal_.step(record);
    failpoint("step_end", site);
  }

  void evaluate() {
    double loss = 0, tokens = 0;
    for (int64_t pass = 0; pass < feed_.evaluation_passes(); ++pass) {
      Control control = step_control(spec_, at_.step, total_);
      control.step = pass;
      const StepReport r = engine_.step(evaluate_key(spec_), control);
      stop_ = r.stop;
      if (stop_) return;  // the loop saves and leaves; the evaluation is repeated after the resume
      loss += r.loss * r.tokens;
      tokens += r.tokens;
    }
    journal_.evaluation(at_.step, loss / tokens, tokens);
    clock_.restart();
  }

  void save() {
    const auto begin = Clock::now();
    rig_.device->drain();
    const SaveReport saved = checkpoints_.save(at_, feed_.sizes().sequences_before(at_.step));
    saved_ = at_.step;
    const double seconds = seconds_since(begin);
    journal_.event("save", at_.step, {{"bytes", saved.bytes}, {"seconds", seconds}, {"stall_seconds", seconds}});
    journal_.say(fmt::format("step {:>6}/{}  saved {} in {:.2f} s, state {:016x}", at_.step, total_, saved.path,
                             seconds, saved.state_hash));
    clock_.restart();
  }

  Exit preempt() {
    const int signal = stop_signal();
    journal_.say(fmt::format("{}: saving and stopping",
                             signal ? fmt::format("signal {}", signal) : "another rank was asked to stop"));
    if (saved_ != at_.step) save();
    trace();
    journal_.event("preempted", at_.step, {{"exit", int(Exit::preempted)}});
    return Exit::preempted;
  }

  // Of the last step.
  void trace() {
    if (!spec_.log.trace || !steps_.ran()) return;
    rig_.device->drain();
    const Planned& p = rig_.planned;
    const std::string text =
        trace_of_step(exchange_, p.mesh, *find_plan(p.program, *steps_.ran()), engine_.spans(*steps_.ran()));
    if (reports_) directory_.write("trace.json", text);
  }

  // All ranks come here together. Each looks at what it computes; the first with an answer is heard, and rank 0 says
  // it.
  [[noreturn]] void stop_not_finite() {
    steps_.settle();
    const auto found = engine_.find_nonfinite(steps_.key(at_.step), steps_.control(at_.step));
    const auto answers = exchange_.all_gather(found.value_or(""));
    const auto ids = exchange_.all_gather(fmt::format("{}", fmt::join(feed_.sample_ids(at_.step), ", ")));
    journal_.event("end", at_.step, {{"exit", int(Exit::not_finite)}});
    if (!reports_) throw Error(Exit::not_finite, "");
    std::string where = "the sum of the gradients (no single value)";
    for (size_t rank = answers.size(); rank-- > 0;)
      if (!answers[rank].empty())
        where = answers.size() == 1 ? answers[rank] : fmt::format("{} (rank {})", answers[rank], rank);
    fail(Exit::not_finite,
         "step {}: loss or gradient is not finite; first in {}; sequences {}; the weights are those of step {}: lower "
         "optimizer.lr, or look at these samples",
         at_.step + 1, where, fmt::join(std::set<std::string>(ids.begin(), ids.end()), "; "), at_.step);
  }

  // Peers' arenas are mapped too, and count as this process's shared pages once they are touched: they are theirs.
  // Beside a GPU's arena the host has an image of the state, the driver and NCCL, of which nothing is promised.
  void check_memory() {
    const size_t arena = rig_.planned.program.arena_bytes, promised = arena + kAllowanceBytes;
    check(rig_.arena().size() == arena, Exit::memory, "the arena has {} bytes, the plan says {}", rig_.arena().size(),
          arena);
    if (rig_.device->kind() != DeviceKind::cpu) return;
    const size_t peak = exchange_.size() == 1 ? peak_rss_bytes() : peak_rss_bytes() - shared_rss_bytes() + arena;
    journal_.say(fmt::format("peak memory {} of {} promised (arena {} and allowance {})", short_bytes(double(peak)),
                             short_bytes(double(promised)), short_bytes(double(arena)),
                             short_bytes(double(kAllowanceBytes))));
    check(peak <= promised || kInstrumented, Exit::memory, "the process used {} bytes, {} were promised", peak,
          promised);
  }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool kInstrumented = true;  // shadow memory is not ours to promise
#else
  static constexpr bool kInstrumented = false;
#endif

  const RunSpec& spec_;
  Exchange& exchange_;
  const bool reports_;  // rank 0 speaks for all
  RunDirectory directory_;
  Rig rig_;
  int64_t total_;
  TokenFeed feed_;
  Checkpoints checkpoints_;
  Engine engine_;
  StepRunner steps_;
  int64_t saved_ = -1;  // the step of the newest checkpoint
  bool stop_ = false;   // some rank was asked to: all know it from the same outcome
  Position at_;
  Journal journal_;
  StepClock clock_;
};

}  // namespace

Exit train(const LoadedSpec& loaded, const Place& place, Exchange& exchange) {
  watch_signals();
  const DeviceSpec& spec = loaded.spec.device;
  const MachineShare share = share_machine(exchange);
  const std::string device = install_device(loaded.spec, share.ranks_on_cores);
  const std::string claimed = claim_device(spec, share.rank, share.ranks);
  return Attempt(loaded, place, exchange, claimed.empty() ? device : claimed + ", " + device).run();
}

}  // namespace trainer
