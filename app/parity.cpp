#include "app/parity.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>

#include "app/ckpt_tensors.h"
#include "core/spec/print.h"

namespace trainer {
namespace {

struct Options {
  std::string a, b;
  std::vector<std::string> overrides;
  int64_t steps = 5;
  std::optional<double> loss_bound, tensor_bound;
};

// fp32 sums in another order; in bf16 partial sums are rounded.
struct Bound {
  double loss, tensor;
};
Bound bound_of(const Options& o, const RunSpec& a, const RunSpec& b) {
  const bool exact = a.precision.compute == Precision::fp32 && b.precision.compute == Precision::fp32;
  return {o.loss_bound.value_or(exact ? 1e-5 : 5e-3), o.tensor_bound.value_or(exact ? 1e-4 : 5e-2)};
}

int ranks_of(const RunSpec& s) {
  const ParallelSpec& p = s.parallel;
  return int(p.tp * p.cp * p.pp * p.dp.value_or(1));
}

RunSpec parity_spec(RunSpec s, const std::string& directory, int64_t steps) {
  s.train.steps = steps;
  s.train.tokens = std::nullopt;
  s.train.ramp.clear();
  s.train.eval_every = std::nullopt;
  s.schedule = {};
  s.checkpoint = {};
  s.checkpoint.every = 1;
  s.checkpoint.keep = steps;
  s.log.dir = directory;
  s.log.every = 1;
  s.log.tensorboard = false;
  return s;
}

// Runs this binary; its output goes to a file, which is shown where it fails.
void run_spec(const RunSpec& spec, const std::string& directory) {
  const std::string config = directory + ".json", log = directory + ".log";
  std::ofstream(config) << to_json(spec).dump(1);
  const std::string ranks = fmt::format("{}", ranks_of(spec));
  std::fflush(stdout);  // or both would print what is buffered
  const pid_t child = fork();
  check(child >= 0, Exit::rank, "cannot start another process");
  if (child == 0) {
    if (!std::freopen(log.c_str(), "w", stdout) || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(int(Exit::disk));
    execl("/proc/self/exe", "trainer", "--config", config.c_str(), "--ranks", ranks.c_str(), nullptr);
    _exit(int(Exit::rank));
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  std::ifstream in(log);
  fmt::print(stderr, "{}", std::string(std::istreambuf_iterator<char>(in), {}));
  fail(WIFEXITED(status) ? Exit(WEXITSTATUS(status)) : Exit::rank, "the run in {} failed; its output is above",
       directory);
}

std::vector<double> losses_of(const std::string& directory) {
  std::vector<double> losses;
  std::ifstream in(directory + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);)
    if (const auto record = nlohmann::json::parse(line); record["kind"] == "step") losses.push_back(record["loss"]);
  return losses;
}

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += double(v) * v;
  return std::sqrt(sum);
}

// "optimizer.moment1." or "" (weights).
struct Kind {
  std::string prefix, name;
  bool has(const std::string& tensor) const {
    return prefix.empty() ? !tensor.starts_with(kOptimizerPrefix) : tensor.starts_with(prefix);
  }
};

struct Difference {
  std::string tensor;
  double relative = 0;
};

std::vector<Difference> differences_of(const Kind& kind, const Checkpoint& a, const Checkpoint& b) {
  std::vector<Difference> all;
  double whole = 0;
  for (const StoredTensor& t : a.manifest.tensors) {
    if (!kind.has(t.name)) continue;
    const StoredTensor* other = find_tensor(b.manifest, t.name);
    check(other && other->shape == t.shape, Exit::usage,
          "{} has tensor {}, {} has none of this shape: parity compares layouts of one model", a.path, t.name, b.path);
    std::vector<float> x = stored_values(a, t);
    const std::vector<float> y = stored_values(b, *other);
    whole += std::pow(norm(x), 2);
    for (size_t i = 0; i < x.size(); ++i) x[i] -= y[i];
    all.push_back({t.name, norm(x)});
  }
  for (Difference& d : all) d.relative /= std::max(std::sqrt(whole), 1e-30);
  std::sort(all.begin(), all.end(),
            [](const Difference& x, const Difference& y) { return before_in_model(x.tensor, y.tensor); });
  return all;
}

class Comparison {
 public:
  Comparison(std::string a, std::string b, const Bound& bound) : a_(std::move(a)), b_(std::move(b)), bound_(bound) {}
  // True where nothing differs by more than the bound; what does is printed.
  bool run(int64_t steps) {
    const std::vector<double> x = losses_of(a_), y = losses_of(b_);
    for (int64_t step = 1; step <= steps; ++step) {
      const double loss = std::abs(x[size_t(step - 1)] / y[size_t(step - 1)] - 1);
      fmt::print("step {}: losses {:.6f} and {:.6f}, {:.1e} apart", step, x[size_t(step - 1)], y[size_t(step - 1)],
                 loss);
      if (!tensors_agree(step)) return false;
      if (!(loss <= bound_.loss)) {
        fmt::print("step {}: the losses differ by {:.2e} (bound {:.0e})\n", step, loss, bound_.loss);
        return false;
      }
    }
    return true;
  }

 private:
  bool tensors_agree(int64_t step) const {
    const auto open = [&](const std::string& run) {
      return open_checkpoint(fmt::format("{}/checkpoints/step-{}", run, step));
    };
    const Checkpoint a = open(a_), b = open(b_);
    std::optional<std::pair<Kind, Difference>> first;
    for (const Kind& kind : {Kind{"optimizer.moment1.", "gradients"}, Kind{"", "weights"}}) {
      const auto all = differences_of(kind, a, b);
      const auto worst = std::max_element(
          all.begin(), all.end(), [](const Difference& x, const Difference& y) { return x.relative < y.relative; });
      fmt::print("; {} {:.1e}", kind.name, worst == all.end() ? 0.0 : worst->relative);
      for (const Difference& d : all)
        if (!first && !(d.relative <= bound_.tensor)) first = {kind, d};
    }
    fmt::print("\n");
    if (!first) return true;
    fmt::print("step {}: {} differs by {:.2e} of the norm of all {} (bound {:.0e})\n", step, first->second.tensor,
               first->second.relative, first->first.name, bound_.tensor);
    return false;
  }

  const std::string a_, b_;
  const Bound bound_;
};

int run(const Options& o) {
  const RunSpec specs[] = {load_spec(o.a, o.overrides), load_spec(o.b, o.overrides)};
  const Bound bound = bound_of(o, specs[0], specs[1]);
  std::string work = (std::filesystem::temp_directory_path() / "trainer_parity.XXXXXX").string();
  check(mkdtemp(work.data()) != nullptr, Exit::disk, "{}: cannot be created; set TMPDIR", work);
  const std::unique_ptr<const std::string, void (*)(const std::string*)> clean(
      &work, [](const std::string* path) { std::filesystem::remove_all(*path); });
  const std::string runs[] = {work + "/a", work + "/b"};
  for (size_t i = 0; i < 2; ++i) {
    fmt::print("{}: {} rank{}\n", i == 0 ? o.a : o.b, ranks_of(specs[i]), ranks_of(specs[i]) == 1 ? "" : "s");
    run_spec(parity_spec(specs[i], runs[i], o.steps), runs[i]);
  }
  const bool same = Comparison(runs[0], runs[1], bound).run(o.steps);
  if (same) fmt::print("the same: losses to {:.0e}, gradients and weights to {:.0e}\n", bound.loss, bound.tensor);
  return int(same ? Exit::done : Exit::difference);
}

}  // namespace

void add_parity_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("parity", "run two layouts of one model, and name the first tensor that differs");
  auto o = std::make_shared<Options>();
  command->add_option("a", o->a, "run spec")->required();
  command->add_option("b", o->b, "run spec")->required();
  command->add_option("--steps", o->steps, "to run")->check(CLI::Range(1, 1000))->capture_default_str();
  command->add_option("--loss-bound", o->loss_bound, "relative; default 1e-5, with bf16 5e-3");
  command->add_option("--tensor-bound", o->tensor_bound, "of the norm of all; default 1e-4, with bf16 5e-2");
  command->add_option("overrides", o->overrides, "section.key=value, for both");
  command->callback([o, &exit_code] { exit_code = run(*o); });
}

}  // namespace trainer
