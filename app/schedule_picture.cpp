#include "app/schedule_picture.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "app/timeline_picture.h"

namespace trainer {
namespace {

char letter_of(const Action& a) {
  const char letter = a.verb == Verb::forward ? 'F' : a.verb == Verb::backward_weight ? 'W' : a.whole ? 'B' : 'I';
  return a.chunk % 2 == 1 ? char(letter - 'A' + 'a') : letter;
}

double shortest_action(const ClockedSchedule& c) {
  double shortest = c.times.makespan;
  for (const StageTimes& s : c.times.stages)
    for (const ActionTime& t : s.actions)
      if (t.end > t.start) shortest = std::min(shortest, t.end - t.start);
  return shortest;
}

}  // namespace

void draw_ascii(std::ostream& out, const ClockedSchedule& c, int width) {
  const double room = std::max(1, width - 9), shortest = shortest_action(c);
  // A letter and the micro-batch; where there is less room, whole columns, so that equal times look equal.
  double columns = std::min(c.shape.microbatches > 10 ? 3.0 : 2.0, room * shortest / c.times.makespan);
  if (columns > 1) columns = std::floor(columns + 1e-9);
  const double scale = columns / shortest;
  for (size_t s = 0; s < c.orders.size(); ++s) {
    std::string line(size_t(std::ceil(c.times.makespan * scale - 1e-9)), '.');
    for (size_t k = 0; k < c.orders[s].size(); ++k) {
      const auto [start, end] = c.times.stages[s].actions[k];
      const auto from = size_t(std::lround(start * scale)),
                 to = std::min(size_t(std::lround(end * scale)), line.size());
      if (from >= to) continue;
      const Action& a = c.orders[s][k];
      std::string text = fmt::format("{}{}", letter_of(a), a.microbatch);
      if (text.size() > to - from) text.resize(1);
      text.resize(to - from, a.verb == Verb::forward ? '>' : a.verb == Verb::backward_weight ? '=' : '<');
      line.replace(from, to - from, text);
    }
    fmt::print(out, "stage {:<2} {}\n", s, line);
  }
  fmt::print(out, "bubble rate {:.4f}, makespan {:g}; a column is {:g}\n", c.times.bubble_rate, c.times.makespan,
             1 / scale);
}

void draw_svg(std::ostream& out, const ClockedSchedule& c) {
  Panel panel{.tracks = {}, .makespan = c.times.makespan, .title = "", .unit = ""};
  for (size_t s = 0; s < c.orders.size(); ++s) {
    Track& track = panel.tracks.emplace_back();
    track.name = fmt::format("stage {}", s);
    for (size_t k = 0; k < c.orders[s].size(); ++k) {
      const Action& a = c.orders[s][k];
      const auto [start, end] = c.times.stages[s].actions[k];
      track.bars.push_back({start, end, fill_of(a.verb, a.chunk, a.whole)});
      track.labels.push_back({start, end, std::to_string(a.microbatch)});
    }
  }
  draw_svg(out, {.title = fmt::format("{}: {} stages, {} micro-batches, bubble rate {:.4f}", c.schedule.name,
                                      c.shape.stages, c.shape.microbatches, c.times.bubble_rate),
                 .panels = {panel}});
}

}  // namespace trainer
