#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "app/bench/bench.h"
#include "app/check.h"
#include "app/ckpt.h"
#include "app/connect.h"
#include "app/data.h"
#include "app/evaluate.h"
#include "app/generate.h"
#include "app/launch.h"
#include "app/parity.h"
#include "app/place.h"
#include "app/plan_command.h"
#include "app/planning.h"
#include "app/train.h"
#include "app/wire.h"
#include "core/base/build_id.h"
#include "core/base/hash.h"
#include "core/spec/print.h"
#include "io/failpoints.h"

namespace trainer {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 done, 1 a difference was found, 2 usage, 10 spec, 11 data, 12 checkpoint, 13 directory in use, 14 "
    "disk, 15 rank "
    "failure, 16 corruption, 17 preempted and saved, 18 hang, 19 not finite, 20 memory, 21 device.";

struct TrainOptions {
  std::string config;
  int ranks = 0;
  bool list_failpoints = false;
  std::vector<std::string> overrides;
};

void add_check_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("check", "every error of a run spec at once; or its JSON Schema");
  auto o = std::make_shared<TrainOptions>();
  auto json = std::make_shared<bool>(false), schema = std::make_shared<bool>(false);
  command->add_option("--config", o->config, "run spec");
  command->add_flag("--json", *json, "print one JSON object");
  command->add_flag("--schema", *schema, "print the JSON Schema of run specs");
  command->add_option("overrides", o->overrides, "section.key=value");
  command->callback([=, &exit_code] {
    if (*schema) exit_code = print_schema(std::cout);
    else exit_code = run_check(o->config, o->overrides, *json, std::cout, std::cerr);
  });
}

int train_as_rank(const LoadedSpec& loaded, const Place& place) {
  const auto spec = fmt::format("{:016x}", hash_text(to_json(loaded.spec).dump()));
  const std::unique_ptr<Exchange> exchange = connect_ranks(place, spec);
  try {
    if (place.rank == 0) check_world(loaded.spec, place.world);  // one rank says it for all
    const Exit exit = train(loaded, place, *exchange);
    exchange->leave("");
    return int(exit);
  } catch (const std::exception& e) {
    exchange->leave(e.what());
    throw;
  }
}

int run_training(const TrainOptions& o, char** argv) {
  const LoadedSpec loaded = read_spec(o.config, o.overrides);
  throw_problems(loaded);
  if (o.ranks > 0 && !is_launched()) {
    check_alone(environment(), o.ranks);
    if (o.ranks > 1) {
      check_world(loaded.spec, o.ranks);  // one process says it for all
      return launch_local(o.ranks, argv);
    }
  }
  return train_as_rank(loaded, o.ranks == 1 ? Place{} : find_place());
}

int run(int argc, char** argv) {
  CLI::App app("trainer pre-trains large language models from a YAML run spec");
  app.footer(kExitCodes);
  int exit_code = int(Exit::done);
  TrainOptions o;
  app.add_option("--config", o.config, "run spec: train, or resume from the newest good checkpoint");
  app.add_option("--ranks", o.ranks, "ranks to start on this host, in place of a launcher")
      ->check(CLI::Range(1, 65536));
  app.add_flag_callback(
      "--version",
      [] {
        std::cout << fmt::format("trainer {}\n{}\n", build_id(), backend_versions());
        throw CLI::Success();
      },
      "this build, and the libraries that GPUs need");
  app.add_flag("--list-failpoints", o.list_failpoints, "names for TRAINER_FAIL=point@step=N:action");
  app.add_option("overrides", o.overrides, "section.key=value, checked like the file");
  app.require_subcommand(0, 1);
  add_plan_command(app, exit_code);
  add_check_command(app, exit_code);
  add_data_commands(app, std::cout);
  add_ckpt_commands(app, exit_code);
  add_bench_commands(app, exit_code);
  add_generate_command(app, exit_code);
  add_evaluate_command(app, exit_code);
  add_parity_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? int(Exit::done) : int(Exit::usage); }
  if (!app.get_subcommands().empty()) return exit_code;
  if (o.list_failpoints) {
    for (const Failpoint& f : failpoints()) std::cout << f.name << "\t" << f.place << "\n";
    return int(Exit::done);
  }
  if (o.config.empty()) {
    std::cerr << app.help();
    return int(Exit::usage);
  }
  return run_training(o, argv);
}

}  // namespace
}  // namespace trainer

int main(int argc, char** argv) {
  try {
    if (const char* faults = std::getenv("TRAINER_FAIL")) trainer::set_failpoints(faults);
    return trainer::run(argc, argv);
  } catch (const trainer::Error& e) {
    if (*e.what()) std::cerr << fmt::format("trainer: {}\n", e.what());  // else another rank says it for all
    return int(e.code());
  } catch (const std::exception& e) {
    std::cerr << fmt::format("trainer: {}\n", e.what());
    return int(trainer::Exit::usage);
  }
}
