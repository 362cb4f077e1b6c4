#include "app/plan_command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "app/plan_report.h"
#include "app/plan_schedule.h"
#include "app/ranks_map.h"
#include "app/step_picture.h"
#include "app/wire.h"
#include "core/base/error.h"
#include "core/plan/text.h"
#include "core/spec/read.h"

namespace trainer {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  int world = 1, rank = 0;
  int ranks_per_host = 8;
  std::string machine = "h100", trace, beside;
  bool json = false, text = false, ranks_map = false;
  ScheduleOptions schedule;
};

int show_schedule(const Options& o) {
  const ClockedSchedule c = clock_schedule(o.schedule);
  if (o.text) fmt::print("{}", to_text(c.orders, c.schedule.placement));
  else print_schedule(c, o.schedule, o.json);
  return int(Exit::done);
}

void draw_beside_run(const Options& o, const PlannedWorld& planned, const ClockedStep& step) {
  std::ifstream in(o.beside);
  std::ostringstream run;
  run << in.rdbuf();
  check(in.good() && run.good(), Exit::usage, "--beside: {} cannot be read", o.beside);
  std::ostringstream picture;
  draw_step(picture,
            {.planned = clock_trace(planned, step), .machine = o.machine, .ran = run.str(), .path_of_run = o.beside});
  std::ofstream out(o.schedule.svg);
  out << picture.str();
  check(bool(out.flush()), Exit::disk, "--svg: {} cannot be written", o.schedule.svg);
}

int run(const Options& o) {
  check(o.config.empty() != o.schedule.schedule.empty(), Exit::usage,
        "plan: wanted either --config, a run's spec, or --schedule, a pipeline schedule by itself");
  if (o.config.empty()) return show_schedule(o);
  const RunSpec spec = load_spec(o.config, o.overrides);
  if (o.ranks_map) {
    print_ranks_map(std::cout, spec, o.world, o.ranks_per_host);
    return int(Exit::done);
  }
  if (o.schedule.ascii || (!o.schedule.svg.empty() && o.beside.empty())) {
    const PlanKey key = plan_keys(spec, Mesh::of(spec, o.world, o.rank).dp).front();
    print_schedule(clock_schedule(spec, key.microbatches), o.schedule, o.json);
    return int(Exit::done);
  }
  const std::string device = install_device(spec);
  const PlannedWorld planned = plan_world(spec, o.world, o.rank);
  if (o.text) {
    fmt::print("{}", to_text(planned.rank.program));
    return int(Exit::done);
  }
  const Machine& machine = find_machine(o.machine);
  const ClockedStep step = clock_step(planned, machine);
  if (!o.trace.empty()) write_clock_trace(o.trace, planned, step);
  if (!o.beside.empty()) draw_beside_run(o, planned, step);
  if (o.json) print_plan_json(planned, step, machine);
  else {
    fmt::print("{} on {}\n", o.config, device);
    print_plan_table(planned, step, machine);
  }
  return int(Exit::done);
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("plan", "what a run needs and does, to the byte, without running it");
  auto o = std::make_shared<Options>();
  command->add_option("--config", o->config, "run spec");
  command->add_option("--world", o->world, "ranks")->capture_default_str();
  command->add_option("--rank", o->rank, "whose plan")->capture_default_str();
  command->add_flag("--json", o->json, "print one JSON object");
  command->add_flag("--text", o->text,
                    "print the program, instruction by instruction; of --schedule, a file for custom:FILE");
  command->add_option("--machine", o->machine, "whose clock times the step: a100, h100, h200, b200, zen3-core")
      ->capture_default_str();
  command->add_option("--trace", o->trace, "write the step's timeline, for Perfetto");
  command->add_flag("--ranks-map", o->ranks_map, "print which rank is where, and in which groups");
  command->add_option("--ranks-per-host", o->ranks_per_host, "for --ranks-map")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_schedule_options(*command, o->schedule);
  command->add_option("--beside", o->beside, "with --svg: the step on the clock above the one of this run's trace.json")
      ->needs("--config")
      ->needs("--svg")
      ->excludes("--ascii");
  command->add_option("overrides", o->overrides, "section.key=value");
  command->callback([o, &exit_code] { exit_code = run(*o); });
}

}  // namespace trainer
