// Orders of pipeline schedules: published bubble rates, closed forms, and what must hold for any shape.
#include <catch2/catch.hpp>

#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "core/base/error.h"
#include "parallel/schedules/clock.h"
#include "parallel/schedules/closed_form.h"
#include "parallel/schedules/problem.h"
#include "parallel/schedules/schedules.h"

using namespace trainer;

namespace {

constexpr const char* kNames[] = {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "zb_auto", "dualpipe_v"};

ScheduleTimes clocked(const Schedule& s, const PipeShape& p) {
  return clock_orders(s.orders(p), p, s.placement, s.limits);
}
// What stages wait in sum between the first and the last action of the busiest.
double bubble(const Schedule& s, const PipeShape& p) {
  return clocked(s, p).cost - p.microbatches * (s.limits.f + s.limits.b + s.limits.w);
}
PipeShape shape_of(const Schedule& s, int stages, int microbatches, int chunks = 2) {
  return {stages, s.chunks == 0 ? chunks : s.chunks, microbatches};
}

// tests/data/pipelines: Qi et al. 2024 (arXiv 2401.10241), tables 3, 5 and 6. Rows by column; the last, which names the
// source, has commas and is left out.
using Row = std::map<std::string, std::string>;
std::vector<Row> read_table(const std::string& name) {
  std::ifstream in(TESTS_DIR "/data/pipelines/" + name);
  std::vector<std::string> columns;
  std::vector<Row> rows;
  for (std::string line, cell; std::getline(in, line);) {
    std::istringstream cells(line);
    if (columns.empty()) {
      while (std::getline(cells, cell, ',')) columns.push_back(cell);
      continue;
    }
    Row& row = rows.emplace_back();
    for (size_t k = 0; k + 1 < columns.size() && std::getline(cells, cell, ','); ++k) row[columns[k]] = cell;
  }
  return rows;
}

struct Published {
  Row rates;
  PipeShape shape;
  Limits limits;
};
std::vector<Published> published() {
  std::map<std::string, Row> models;
  for (const Row& r : read_table("zero_bubble_models.csv")) models[r.at("model")] = r;
  const auto rates = read_table("zero_bubble_bubble_rates.csv"), times = read_table("zero_bubble_profile_times.csv");
  std::vector<Published> all;
  for (size_t k = 0; k < rates.size(); ++k) {
    const Row &r = rates[k], &t = times.at(k), &model = models.at(r.at("model"));
    REQUIRE((r.at("model") == t.at("model") && r.at("m") == t.at("m")));
    const auto time = [&](const char* column) { return std::stod(t.at(column)); };
    const auto size = [&](const char* column) { return std::stod(model.at(column)); };
    Limits l{.f = time("T_F"), .b = time("T_B"), .w = time("T_W"), .comm = time("T_comm"), .file = {}};
    l.kept = 34 * size("hidden") + 5 * size("heads") * size("seq");  // the paper's M_B and M_W, per token and layer
    l.owed = 32 * size("hidden");
    all.push_back({r, {std::stoi(r.at("p")), 1, std::stoi(r.at("m"))}, l});
  }
  return all;
}

}  // namespace

TEST_CASE("the zero-bubble paper's rates of 1F1B, ZB-H1, ZB-H2, ZB-1p and ZB-2p") {
  struct Column {
    const char *name, *schedule;
    double limit = 1;
  };
  int figures = 0;
  for (const Published& row : published())
    for (const Column& c : {Column{"1F1B", "1f1b"},
                            {"ZB-H1", "zb_h1"},
                            {"ZB-H2", "zb_h2"},
                            {"ZB-1p", "zb_auto", 1},
                            {"ZB-2p", "zb_auto", 2}}) {
      Schedule s = find_schedule(c.schedule);
      s.limits = row.limits;
      s.limits.activations = c.limit;
      CAPTURE(row.rates.at("model"), row.shape.microbatches, c.name);
      CHECK(clocked(s, row.shape).bubble_rate == Approx(std::stod(row.rates.at(c.name))).margin(0.0002).epsilon(0));
      ++figures;
    }
  REQUIRE(figures == 60);
}

TEST_CASE("the zero-bubble paper's rates of interleaved 1F1B, by their closed form") {
  const std::map<std::string, int> chunks{{"1.5B", 3}, {"6.2B", 4}, {"14.6B", 3}, {"28.3B", 2}};
  int figures = 0;
  for (const Published& row : published()) {
    Schedule s = find_schedule("interleaved");
    s.limits = row.limits;
    const PipeShape shape{row.shape.stages, chunks.at(row.rates.at("model")), row.shape.microbatches};
    const double rate = std::stod(row.rates.at("1F1B-I"));
    CAPTURE(row.rates.at("model"), row.shape.microbatches);
    CHECK(closed_form(s, shape)->bubble_rate == Approx(rate).margin(0.0002).epsilon(0));
    // On the clock a stage waits for what it receives: stages x comm more.
    CHECK(clocked(s, shape).bubble_rate - rate < 0.004);
    ++figures;
  }
  REQUIRE(figures == 12);
}

TEST_CASE("a schedule of any shape has everything once, in order, and does not deadlock") {
  std::mt19937 random(1);
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  for (int round = 0; round < 150; ++round)
    for (const char* name : kNames) {
      Schedule s = find_schedule(name);
      const PipeShape p = shape_of(s, up_to(16), up_to(64), up_to(4));
      s.limits.activations = 1 + up_to(4) * 0.25;
      s.limits.f = up_to(8);
      s.limits.b = up_to(8);
      s.limits.w = up_to(8);
      s.limits.comm = up_to(4) * 0.25;
      s.limits.owed = up_to(4) * 0.25;
      CAPTURE(name, p.stages, p.chunks, p.microbatches);
      const Orders orders = s.orders(p);
      const auto problem = find_problem(orders, p, s.placement);
      REQUIRE((problem ? problem->what : "") == "");
      const ScheduleTimes t = clock_orders(orders, p, s.placement, s.limits);
      const double work = p.microbatches * (s.limits.f + s.limits.b + s.limits.w);
      REQUIRE(t.stages.size() == size_t(p.stages));
      for (const StageTimes& stage : t.stages) {
        REQUIRE(stage.busy == Approx(work));
        REQUIRE(stage.peak <= s.limits.kept * p.microbatches + 1e-9);
      }
    }
}

TEST_CASE("stages hold what the closed forms say") {
  std::mt19937 random(2);
  int compared = 0;
  for (int stages = 1; stages <= 16; ++stages)
    for (int microbatches : {1, stages, 2 * stages, 3 * stages, 64})
      for (const char* name : kNames) {
        Schedule s = find_schedule(name);
        s.limits.owed = std::uniform_int_distribution<int>(1, 4)(random) * 0.25;
        const PipeShape p = shape_of(s, stages, microbatches, 1 + stages % 4);
        const auto form = closed_form(s, p);
        if (!form) continue;
        CAPTURE(name, p.stages, p.chunks, p.microbatches, s.limits.owed);
        const ScheduleTimes t = clocked(s, p);
        for (int stage = 0; stage < stages; ++stage)
          REQUIRE(t.stages[size_t(stage)].peak == Approx(form->peaks[size_t(stage)]));
        ++compared;
      }
  REQUIRE(compared > 300);
}

TEST_CASE("stages wait as long as the closed forms say") {
  for (int stages : {1, 2, 3, 4, 8, 16})
    for (double w : {0.5, 0.75, 1.0})
      for (const char* name : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "dualpipe_v"}) {
        Schedule s = find_schedule(name);
        s.limits.w = w;
        const PipeShape p = shape_of(s, stages, 4 * stages);
        const double clock = clocked(s, p).bubble_rate, paper = closed_form(s, p)->bubble_rate;
        CAPTURE(name, stages, w, clock, paper);
        if (s.name == "dualpipe_v") CHECK(clock <= paper + 1e-9);
        else if (s.name != "zb_v" || w == 1) CHECK(clock == Approx(paper).margin(1e-9));
      }
}

TEST_CASE("zb_v has no bubble where forward and both halves of backward take as long") {
  const Schedule s = find_schedule("zb_v");
  for (int stages = 1; stages <= 16; ++stages)
    for (int microbatches : {2 * stages, 2 * stages + 1, 3 * stages, 64})
      CHECK(bubble(s, shape_of(s, stages, std::max(microbatches, 2 * stages))) == Approx(0).margin(1e-9));
}

TEST_CASE("zb_auto keeps to its limit, and more memory is less waiting") {
  for (int stages : {2, 4, 8})
    for (double owed : {0.25, 1.0, 1.5}) {
      double before = 1e9;
      for (double limit : {0.5, 1.0, 1.5, 2.0, 3.0}) {
        Schedule s = find_schedule("zb_auto");
        s.limits.owed = owed;
        s.limits.activations = limit;
        s.limits.comm = 0.1;
        if (limit * stages < std::max(owed, 1.0)) continue;
        const PipeShape p{stages, 1, 3 * stages};
        const ScheduleTimes t = clocked(s, p);
        CAPTURE(stages, owed, limit);
        for (const StageTimes& stage : t.stages) CHECK(stage.peak <= limit * stages + 1e-9);
        CHECK(t.cost <= before + 1e-9);
        before = t.cost;
      }
    }
  Schedule s = find_schedule("zb_auto");
  s.limits.activations = 0.1;
  REQUIRE_THROWS_WITH(s.orders({4, 1, 8}), Catch::Contains("at least 0.25"));
}

TEST_CASE("interleaved with a last group that is not full waits no longer than with one that is") {
  const Schedule s = find_schedule("interleaved");
  for (int stages : {2, 3, 4, 8})
    for (int chunks : {2, 3})
      for (int microbatches = 1; microbatches <= 3 * stages; ++microbatches) {
        const int full = (microbatches + stages - 1) / stages * stages;
        CAPTURE(stages, chunks, microbatches);
        CHECK(clocked(s, {stages, chunks, microbatches}).makespan <= clocked(s, {stages, chunks, full}).makespan);
      }
}
