#include "app/plan_schedule.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "app/schedule_picture.h"
#include "core/base/error.h"
#include "parallel/schedules/closed_form.h"
#include "parallel/schedules/problem.h"
#include "parallel/schedules/schedules.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

double useful(const ClockedSchedule& c) {
  const Limits& l = c.schedule.limits;
  return c.shape.microbatches * (l.f + l.b + l.w);
}
template <class Get>
std::vector<double> of_stages(const ClockedSchedule& c, Get get) {
  std::vector<double> all;
  for (const StageTimes& s : c.times.stages) all.push_back(get(s));
  return all;
}

ClockedSchedule clock(Schedule schedule, const PipeShape& shape) {
  ClockedSchedule c{std::move(schedule), shape, {}, {}};
  c.orders = c.schedule.orders(shape);
  c.times = clock_orders(c.orders, shape, c.schedule.placement, c.schedule.limits);
  check(c.times.stuck.empty(), Exit::spec, "[pipeline] {} deadlocks:{}", c.schedule.name, c.times.stuck);
  return c;
}

Json json_of(const ClockedSchedule& c) {
  const Limits& l = c.schedule.limits;
  Json closed = nullptr;
  if (const auto form = closed_form(c.schedule, c.shape))
    closed = {{"bubble_rate", form->bubble_rate}, {"peak_activations", form->peaks}};
  return {{"schedule", c.schedule.name},
          {"stages", c.shape.stages},
          {"microbatches", c.shape.microbatches},
          {"chunks", c.shape.chunks},
          {"times", {{"f", l.f}, {"b", l.b}, {"w", l.w}, {"comm", l.comm}}},
          {"bubble_rate", c.times.bubble_rate},
          {"makespan", c.times.makespan},
          {"cost", c.times.cost},
          {"bubble", c.times.cost - useful(c)},
          {"peak_activations", of_stages(c, [](const StageTimes& s) { return s.peak; })},
          {"peak_in_flight", of_stages(c, [](const StageTimes& s) { return s.in_flight; })},
          {"stage_spans", of_stages(c, [](const StageTimes& s) { return s.end - s.begin; })},
          {"closed_form", closed}};
}

void print_table(const ClockedSchedule& c) {
  const auto form = closed_form(c.schedule, c.shape);
  fmt::print("{}: {} stages of {} chunk{}, {} micro-batches\n", c.schedule.name, c.shape.stages, c.shape.chunks,
             c.shape.chunks == 1 ? "" : "s", c.shape.microbatches);
  fmt::print("bubble rate     {:.4f}", c.times.bubble_rate);
  if (form) fmt::print("   closed form {:.4f}", form->bubble_rate);
  fmt::print("\nmakespan        {:g}\nbusiest stage   {:g}, of which it waits {:g}\n", c.times.makespan, c.times.cost,
             c.times.cost - useful(c));
  fmt::print("\n  {:>5} {:>10} {:>10} {:>10} {:>12}{}\n", "stage", "begins", "ends", "in flight", "peak",
             form ? "  closed form" : "");
  for (size_t k = 0; k < c.times.stages.size(); ++k) {
    const StageTimes& s = c.times.stages[k];
    fmt::print("  {:>5} {:>10g} {:>10g} {:>10g} {:>12g}", k, s.begin, s.end, s.in_flight, s.peak);
    fmt::print("{}\n", form ? fmt::format(" {:>12g}", form->peaks[k]) : "");
  }
}

}  // namespace

void add_schedule_options(CLI::App& app, ScheduleOptions& o) {
  constexpr int kMost = std::numeric_limits<int16_t>::max();
  auto* schedule = app.add_option("--schedule", o.schedule,
                                  "a pipeline schedule by itself, without a spec: gpipe, 1f1b, "
                                  "interleaved, zb_h1, zb_h2, zb_v, zb_auto, dualpipe_v or custom:FILE");
  app.add_option("--stages", o.stages, "of the pipeline")->check(CLI::Range(1, 16384))->needs(schedule);
  app.add_option("--microbatches", o.microbatches, "of a step")->check(CLI::Range(1, kMost))->needs(schedule);
  app.add_option("--chunks", o.chunks, "of a stage (virtual stages)")->check(CLI::Range(1, 1000))->needs(schedule);
  app.add_option("--times", o.times, "f,b,w,comm of a micro-batch on a whole stage")
      ->delimiter(',')
      ->expected(4)
      ->check(CLI::NonNegativeNumber)
      ->needs(schedule);
  app.add_option("--sizes", o.sizes, "MB,MW: held from forward to input gradient, and from there to weight gradient")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::NonNegativeNumber)
      ->needs(schedule);
  app.add_option("--limit", o.limit, "zb_auto: the most a stage may hold, in units of stages x MB")
      ->check(CLI::PositiveNumber)
      ->needs(schedule);
  app.add_flag("--ascii", o.ascii, "draw the schedule");
  app.add_option("--width", o.width, "of the drawing, in columns")->check(CLI::Range(20, 100000));
  app.add_option("--svg", o.svg, "write the schedule as a picture to this file");
}

ClockedSchedule clock_schedule(const ScheduleOptions& o) {
  Schedule s = find_schedule(o.schedule);
  Limits& l = s.limits;
  l.f = o.times[0];
  l.b = o.times[1];
  l.w = o.times[2];
  l.comm = o.times[3];
  l.kept = o.sizes[0];
  l.owed = o.sizes[1];
  l.activations = o.limit;
  check(l.f + l.b + l.w > 0 && l.kept > 0, Exit::usage, "--times and --sizes: wanted a time and MB above zero");
  const int usual = s.chunks > 0 ? s.chunks : s.name == "interleaved" ? 2 : 1;
  const PipeShape shape{o.stages, o.chunks > 0 ? o.chunks : usual, o.microbatches};
  return clock(std::move(s), shape);
}

ClockedSchedule clock_schedule(const RunSpec& spec, int microbatches) {
  const PipelineSpec& pipe = spec.parallel.pipeline;
  return clock(find_schedule(pipe), {int(spec.parallel.pp), int(pipe.virtual_stages), microbatches});
}

void print_schedule(const ClockedSchedule& c, const ScheduleOptions& o, bool json) {
  if (!o.svg.empty()) {
    std::ofstream out(o.svg);
    draw_svg(out, c);
    out.close();
    check(bool(out), Exit::usage, "--svg: {} cannot be written", o.svg);
  }
  if (o.ascii) draw_ascii(std::cout, c, o.width);
  else if (json) fmt::print("{}\n", json_of(c).dump(1));
  else print_table(c);
}

}  // namespace trainer
