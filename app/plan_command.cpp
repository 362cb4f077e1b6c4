#include "app/plan_command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/journal.h"
#include "app/planning.h"
#include "app/wire.h"
#include "core/plan/arena_bytes.h"
#include "core/plan/text.h"
#include "core/spec/read.h"

namespace trainer {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  int world = 1, rank = 0;
  bool json = false, text = false;
};

size_t machine_memory() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemTotal:")) return size_t(std::stoull(line.substr(9))) * 1024;
  return 0;
}
bool fits(const Program& program) { return program.arena_bytes + kAllowanceBytes <= machine_memory(); }

std::string dtype_of(const std::string& what) { return what.substr(what.rfind(' ') + 1); }

void print_json(const Planned& p) {
  using Json = nlohmann::ordered_json;
  const ArenaBytes b = arena_bytes(p.program);
  const FlopsPerToken flops = flops_per_token(p.spec.model, p.spec.data.seq_len);
  Json collectives = Json::array();
  const MeterCounts counts = step_counts(p);
  for (const auto& [what, count] : counts.collectives) {  // "dp all_reduce f32"
    const size_t space = what.find(' ');
    collectives.push_back({{"axis", what.substr(0, space)},
                           {"op", what.substr(space + 1, what.rfind(' ') - space - 1)},
                           {"dtype", dtype_of(what)},
                           {"bytes", count.bytes},
                           {"count", count.count}});
  }
  const Json out{{"parameters", parameter_count(p.model)},
                 {"world", p.mesh.size()},
                 {"mesh", {{"pp", p.mesh.pp}, {"dp", p.mesh.dp}, {"cp", p.mesh.cp}, {"tp", p.mesh.tp}}},
                 {"arena_bytes", p.program.arena_bytes},
                 {"allowance_bytes", kAllowanceBytes},
                 {"bytes",
                  {{"weights", b.weights},
                   {"master", b.master},
                   {"gradients", b.gradients},
                   {"moments", b.moments},
                   {"activations", b.activations},
                   {"staging", b.staging},
                   {"scratch", b.scratch + b.control}}},
                 {"flops_per_token",
                  {{"simple", flops.simple}, {"exact_full", flops.exact_full}, {"exact_causal", flops.exact_causal}}},
                 {"collectives", collectives},
                 {"bubble_rate", 0.0},
                 {"plan_hash", fmt::format("{:016x}", p.program.hash)},
                 {"fits", fits(p.program)}};
  fmt::print("{}\n", out.dump(1));
}

// The first and last actions tell how activations rise and fall; all of them are in --json's plan text.
void print_activations(const Planned& p) {
  const PlanKey key = plan_keys(p.spec, p.mesh.dp).front();
  const auto peaks = activation_peaks(*find_plan(p.program, key));
  fmt::print("\nactivations by schedule position ({} micro-batch{} of {} x {} tokens)\n", key.microbatches,
             key.microbatches == 1 ? "" : "es", p.spec.train.micro_batch, key.seq_len);
  for (size_t i = 0; i < peaks.size(); ++i) {
    if (peaks.size() > 8 && i == 4) fmt::print("  ...\n");
    if (peaks.size() > 8 && i >= 4 && i + 4 < peaks.size()) continue;
    fmt::print("  {:<8} micro-batch {:<3} {:>12}\n", peaks[i].forward ? "forward" : "backward", peaks[i].microbatch,
               short_bytes(double(peaks[i].bytes)));
  }
}

void print_table(const Planned& p) {
  const ArenaBytes b = arena_bytes(p.program);
  const FlopsPerToken flops = flops_per_token(p.spec.model, p.spec.data.seq_len);
  fmt::print("parameters      {} ({})\n", parameter_count(p.model), short_number(double(parameter_count(p.model))));
  fmt::print("FLOPs a token   {} simple, {} exact_full, {} exact_causal\n", short_number(flops.simple),
             short_number(flops.exact_full), short_number(flops.exact_causal));
  fmt::print("\nbytes of rank {} of {}\n", p.mesh.rank(), p.mesh.size());
  const auto row = [&](const char* name, size_t bytes) {
    if (bytes) fmt::print("  {:<12} {:>18} {:>12}\n", name, bytes, short_bytes(double(bytes)));
  };
  row("weights", b.weights);
  row("master", b.master);
  row("gradients", b.gradients);
  row("moments", b.moments);
  row("activations", b.activations);
  row("staging", b.staging);
  row("scratch", b.scratch);
  row("control", b.control);
  row("arena", p.program.arena_bytes);
  fmt::print("  {:<12} {:>18} {:>12}   for heap, code and libraries\n", "allowance", kAllowanceBytes,
             short_bytes(double(kAllowanceBytes)));
  print_activations(p);
  fmt::print("\nplan hash {:016x}; this machine has {}: {}\n", p.program.hash, short_bytes(double(machine_memory())),
             fits(p.program) ? "it fits" : "it does not fit");
}

int run(const Options& o) {
  const RunSpec spec = load_spec(o.config, o.overrides);
  const std::string device = install_device(spec.device);
  const Planned planned = plan_run(spec, o.world, o.rank);
  if (o.text) fmt::print("{}", to_text(planned.program));
  else if (o.json) print_json(planned);
  else {
    fmt::print("{} on {}\n", o.config, device);
    print_table(planned);
  }
  return int(Exit::done);
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("plan", "what a run needs and does, to the byte, without running it");
  auto o = std::make_shared<Options>();
  command->add_option("--config", o->config, "run spec")->required();
  command->add_option("--world", o->world, "ranks")->capture_default_str();
  command->add_option("--rank", o->rank, "whose plan")->capture_default_str();
  command->add_flag("--json", o->json, "print one JSON object");
  command->add_flag("--text", o->text, "print the program, instruction by instruction");
  command->add_option("overrides", o->overrides, "section.key=value");
  command->callback([o, &exit_code] { exit_code = run(*o); });
}

}  // namespace trainer
