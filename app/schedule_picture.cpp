#include "app/schedule_picture.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <ostream>

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

// Fills of forward, whole backward, its input half and its weight half: of even chunks, then, lighter, of odd ones.
constexpr const char* kFills[2][4] = {{"#5b8def", "#2f9e6e", "#4fbf8b", "#c9a227"},
                                      {"#a9c3f7", "#8fd0b3", "#a8e3c8", "#ead9a0"}};
int fill_of(const Action& a) {
  return a.verb == Verb::forward ? 0 : a.verb == Verb::backward_weight ? 3 : a.whole ? 1 : 2;
}
constexpr double kRow = 18, kGap = 3, kWidth = 900, kDigit = 6;

// Rectangles of one kind in one path: a picture is small enough to be kept beside a document.
std::string path_of(const ClockedSchedule& c, double scale, int chunk, int fill) {
  std::string path;
  for (size_t s = 0; s < c.orders.size(); ++s)
    for (size_t k = 0; k < c.orders[s].size(); ++k) {
      const Action& a = c.orders[s][k];
      if (a.chunk % 2 != chunk || fill_of(a) != fill) continue;
      const auto [start, end] = c.times.stages[s].actions[k];
      path += fmt::format("M{:.1f} {:g}h{:.1f}v{:g}h-{:.1f}z", start * scale, double(s) * (kRow + kGap),
                          (end - start) * scale, kRow, (end - start) * scale);
    }
  return path;
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
  const double scale = kWidth / c.times.makespan, height = double(c.orders.size()) * (kRow + kGap);
  fmt::print(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-60 -6 {:g} {:g}\" font-family=\"sans-serif\" "
             "font-size=\"10\">\n<title>{}: {} stages, {} micro-batches, bubble rate {:.4f}</title>\n"
             "<rect x=\"-60\" y=\"-6\" width=\"{:g}\" height=\"{:g}\" fill=\"#fff\"/>\n",
             kWidth + 66, height + 9, c.schedule.name, c.shape.stages, c.shape.microbatches, c.times.bubble_rate,
             kWidth + 66, height + 9);
  for (int chunk = 0; chunk < 2; ++chunk)
    for (int fill = 0; fill < 4; ++fill)
      if (const std::string path = path_of(c, scale, chunk, fill); !path.empty())
        fmt::print(out, "<path fill=\"{}\" stroke=\"#fff\" stroke-width=\".6\" d=\"{}\"/>\n", kFills[chunk][fill],
                   path);
  for (size_t s = 0; s < c.orders.size(); ++s) {
    const double y = double(s) * (kRow + kGap) + kRow - 5;
    fmt::print(out, "<text x=\"-56\" y=\"{:g}\">stage {}</text>\n<g text-anchor=\"middle\">", y, s);
    for (size_t k = 0; k < c.orders[s].size(); ++k) {
      const auto [start, end] = c.times.stages[s].actions[k];
      const std::string number = std::to_string(c.orders[s][k].microbatch);
      if ((end - start) * scale >= kDigit * double(number.size()) + 2)
        fmt::print(out, "<text x=\"{:.1f}\" y=\"{:g}\">{}</text>", (start + end) / 2 * scale, y, number);
    }
    fmt::print(out, "</g>\n");
  }
  fmt::print(out, "</svg>\n");
}

}  // namespace trainer
