#include "app/step_picture.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <ostream>

#include "app/timeline_picture.h"
#include "io/strict_json.h"

namespace trainer {
namespace {

struct Call {
  std::string name, verb;
  double begin = 0, end = 0;  // in microseconds
};
struct CallLane {
  std::string name;
  std::vector<Call> calls;  // in the plan's order
};
struct RankTrace {
  std::string name;
  std::map<int, CallLane> lanes;
};
struct Trace {
  std::string path;
  std::map<int, RankTrace> ranks;
};

Trace read_trace(const std::string& text, const std::string& path) {
  const auto json = parse_strict_json(text, path, Exit::usage);
  Trace trace{path, {}};
  try {
    for (const auto& e : json.at("traceEvents")) {
      RankTrace& rank = trace.ranks[e.at("pid").get<int>()];
      const std::string phase = e.at("ph"), name = e.at("name");
      if (phase == "M") {
        std::string& named = name == "process_name" ? rank.name : rank.lanes[e.at("tid").get<int>()].name;
        named = e.at("args").at("name").get<std::string>();
      } else if (phase == "X") {
        const double begin = e.at("ts"), length = e.at("dur");
        rank.lanes[e.at("tid").get<int>()].calls.push_back(
            {name, e.at("cat").get<std::string>(), begin, begin + length});
      }
    }
  } catch (const nlohmann::json::exception& e) {
    fail(Exit::usage, "{}: wanted a trace as log.trace writes it: {}", path, e.what());
  }
  return trace;
}

bool is_pass(const Call& c) { return c.verb == "forward" || c.verb.starts_with("backward"); }

std::string tracks_of(const RankTrace& rank) {  // "rank 0, stage 0: compute send_act"
  std::string text = rank.name + ":";
  for (const auto& [id, lane] : rank.lanes) text += " " + lane.name;
  return text;
}

std::vector<std::string> passes_of(const RankTrace& rank) {
  std::vector<std::string> names;
  for (const auto& [id, lane] : rank.lanes)
    for (const Call& c : lane.calls)
      if (is_pass(c)) names.push_back(c.name);
  return names;
}

void check_same_plan(const Trace& planned, const Trace& ran) {
  for (const auto& [id, rank] : planned.ranks) {
    const auto it = ran.ranks.find(id);
    const RankTrace other = it == ran.ranks.end() ? RankTrace{"none", {}} : it->second;
    check(tracks_of(other) == tracks_of(rank), Exit::usage,
          "{}: not a run of this plan: wanted the tracks `{}`, found `{}`", ran.path, tracks_of(rank),
          tracks_of(other));
    const std::vector<std::string> wanted = passes_of(rank), found = passes_of(other);
    const auto [w, f] = std::ranges::mismatch(wanted, found);
    if (w == wanted.end() && f == found.end()) continue;
    const auto name = [](auto at, const auto& names) { return at == names.end() ? "none" : *at; };
    fail(Exit::usage, "{}: not a run of this plan: pass {} of {}: wanted `{}`, found `{}`", ran.path,
         w - wanted.begin() + 1, rank.name, name(w, wanted), name(f, found));
  }
}

// Of a name like "forward 3.1 block 5".
struct Indices {
  int microbatch = -1, chunk = 0;
};
Indices indices_of(const Call& c) {
  Indices i;
  std::sscanf(c.name.c_str(), "%*s %d.%d", &i.microbatch, &i.chunk);
  return i;
}

Fill fill_of(const Call& c) {
  for (size_t v = 0; v <= size_t(Verb::snapshot); ++v)
    if (name_of(Verb(v)) == c.verb) return fill_of(Verb(v), is_pass(c) ? indices_of(c).chunk : 0);
  return Fill::other;
}

// Times from the panel's beginning, in its unit.
struct Scale {
  double origin = 0, unit = 1;
  double operator()(double microseconds) const { return (microseconds - origin) / unit; }
};

// A micro-batch's blocks, where they run one after another, have one number.
std::vector<Label> labels_of(const CallLane& lane, const Scale& at) {
  std::vector<Label> labels;
  const Call* before = nullptr;
  for (const Call& c : lane.calls) {
    if (!is_pass(c)) continue;
    const auto [microbatch, chunk] = indices_of(c);
    const bool same = before && indices_of(*before).microbatch == microbatch && indices_of(*before).chunk == chunk &&
                      (before->verb == "forward") == (c.verb == "forward");
    if (same) labels.back().end = at(c.end);
    else labels.push_back({at(c.begin), at(c.end), std::to_string(microbatch)});
    before = &c;
  }
  return labels;
}

// A rank's compute lane is a track with its name; below it, lower, its other lanes.
Track track_of(const RankTrace& rank, const CallLane& lane, const Scale& at) {
  constexpr double kLow = 6;
  Track track;
  if (lane.name == name_of(Lane::compute)) {
    track.name = rank.name;
    track.labels = labels_of(lane, at);
  } else {
    track.name = lane.name;
    track.height = kLow;
  }
  for (const Call& c : lane.calls) track.bars.push_back({at(c.begin), at(c.end), fill_of(c)});
  return track;
}

Panel panel_of(const Trace& planned, const Trace& trace, const std::string& where) {
  double begin = std::numeric_limits<double>::infinity(), end = -begin;
  for (const auto& [id, rank] : planned.ranks)
    for (const auto& [number, lane] : trace.ranks.at(id).lanes)
      for (const Call& c : lane.calls) {
        begin = std::min(begin, c.begin);
        end = std::max(end, c.end);
      }
  const double length = end - begin;
  check(length > 0, Exit::usage, "{}: a step that takes no time", trace.path);
  const auto [unit, name] = length < 1e3   ? std::pair(1.0, "us")
                            : length < 1e6 ? std::pair(1e3, "ms")
                                           : std::pair(1e6, "s");
  Panel panel{.tracks = {}, .makespan = length / unit, .title = "", .unit = name};
  panel.title = fmt::format("{}: {:.4g} {}", where, panel.makespan, name);
  for (const auto& [id, rank] : planned.ranks)
    for (const auto& [number, lane] : trace.ranks.at(id).lanes)
      panel.tracks.push_back(track_of(rank, lane, {begin, unit}));
  return panel;
}

}  // namespace

void draw_step(std::ostream& out, const StepTraces& t) {
  const Trace planned = read_trace(t.planned, "the plan's trace"), ran = read_trace(t.ran, t.path_of_run);
  check_same_plan(planned, ran);
  const std::string clock = fmt::format("on the clock of {}", t.machine);
  draw_svg(out, {.title = fmt::format("a step {}, and in a run", clock),
                 .panels = {panel_of(planned, planned, clock), panel_of(planned, ran, "in a run")},
                 .fine = true,
                 .legend = true});
}

}  // namespace trainer
