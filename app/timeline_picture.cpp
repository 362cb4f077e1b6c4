#include "app/timeline_picture.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>

namespace trainer {
namespace {

struct Look {
  const char *colour, *meaning;
};
constexpr Look kLooks[] = {
    {"#5b8def", "forward"},
    {"#2f9e6e", "backward"},
    {"#4fbf8b", "input half of a backward"},
    {"#c9a227", "weight half of a backward"},
    {"#a9c3f7", "the same of an odd chunk: forward"},
    {"#8fd0b3", "backward"},
    {"#a8e3c8", "input half"},
    {"#ead9a0", "weight half"},
    {"#8c6bb1", "recompute"},
    {"#7f8c8d", "message"},
    {"#d9694f", "collective"},
    {"#e3e3e3", "agreement"},
    {"#b5a08e", "norm, update and other"},
};
constexpr size_t kFills = std::size(kLooks);
static_assert(kFills == size_t(Fill::other) + 1);

constexpr double kGap = 3, kWidth = 900, kDigit = 6, kLetter = 5.5, kLine = 16, kThinnest = 0.05;

// 1, 2 or 5 times a power of ten: ten marks at most.
double step_of_axis(double makespan) {
  const double least = makespan / 10, power = std::pow(10, std::floor(std::log10(least)));
  for (const double step : {1.0, 2.0, 5.0})
    if (step * power >= least) return step * power;
  return 10 * power;
}

double margin_of(const Picture& p) {
  size_t longest = 0;
  for (const Panel& panel : p.panels)
    for (const Track& t : panel.tracks) longest = std::max(longest, t.name.size());
  return std::max(60.0, 8 + kLetter * double(longest));
}

class Drawing {
 public:
  explicit Drawing(const Picture& p) : picture_(p), margin_(margin_of(p)) {
    for (const Panel& panel : p.panels) draw(panel);
    if (p.legend) draw_legend();
  }
  void print(std::ostream& out) const {
    const double width = kWidth + margin_ + 6, height = y_ + 9;
    fmt::print(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-{:g} -6 {:g} {:g}\" font-family=\"sans-serif\" "
               "font-size=\"10\">\n<title>{}</title>\n<rect x=\"-{:g}\" y=\"-6\" width=\"{:g}\" height=\"{:g}\" "
               "fill=\"#fff\"/>\n{}</svg>\n",
               margin_, width, height, picture_.title, margin_, width, height, body_);
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }

  void draw(const Panel& panel) {
    if (!panel.title.empty()) {
      put("<text y=\"{:g}\" font-weight=\"bold\">{}</text>\n", y_ + 10, panel.title);
      y_ += kLine;
    }
    const double top = y_, scale = kWidth / panel.makespan;
    for (size_t fill = 0; fill < kFills; ++fill) draw_bars(panel, top, scale, Fill(fill));
    for (const Track& t : panel.tracks) {
      draw_texts(t, scale);
      y_ += t.height + kGap;
    }
    if (!panel.unit.empty()) draw_axis(panel, scale);
  }

  // Bars of one kind in one path: a picture is small enough to be kept beside a document.
  void draw_bars(const Panel& panel, double y, double scale, Fill fill) {
    std::string path;
    for (const Track& t : panel.tracks) {
      for (const Bar& b : t.bars)
        if (const double width = (b.end - b.begin) * scale; b.fill == fill && width >= kThinnest)
          fmt::format_to(std::back_inserter(path), "M{:.1f} {:g}h{:.1f}v{:g}h-{:.1f}z", b.begin * scale, y, width,
                         t.height, width);
      y += t.height + kGap;
    }
    if (path.empty()) return;
    used_[size_t(fill)] = true;
    put("<path fill=\"{}\" stroke=\"#fff\" stroke-width=\"{}\" d=\"{}\"/>\n", kLooks[size_t(fill)].colour,
        picture_.fine ? ".15" : ".6", path);
  }

  void draw_texts(const Track& t, double scale) {
    const double size = std::min(10.0, t.height), y = y_ + t.height / 2 + 0.4 * size;
    put("<text x=\"-{:g}\" y=\"{:g}\"", margin_ - 4, y);
    if (size < 10) put(" font-size=\"{:g}\"", size);
    put(">{}</text>\n", t.name);
    if (t.labels.empty()) return;
    put("<g text-anchor=\"middle\">");
    for (const Label& l : t.labels)
      if ((l.end - l.begin) * scale >= kDigit * double(l.text.size()) + 2)
        put("<text x=\"{:.1f}\" y=\"{:g}\">{}</text>", (l.begin + l.end) / 2 * scale, y, l.text);
    put("</g>\n");
  }

  void draw_axis(const Panel& panel, double scale) {
    const double step = step_of_axis(panel.makespan);
    put("<path stroke=\"#999\" stroke-width=\".5\" fill=\"none\" d=\"M0 {:g}h{:g}", y_, kWidth);
    for (double t = 0; t <= panel.makespan; t += step) put("M{:.1f} {:g}v3", t * scale, y_);
    put("\"/>\n<g text-anchor=\"middle\" font-size=\"8\">");
    for (double t = 0; t <= panel.makespan; t += step)
      put("<text x=\"{:.1f}\" y=\"{:g}\">{:g} {}</text>", t * scale, y_ + 11, t, panel.unit);
    put("</g>\n");
    y_ += 2 * kLine;
  }

  void draw_legend() {
    double x = 0;
    for (size_t fill = 0; fill < kFills; ++fill) {
      if (!used_[fill]) continue;
      const std::string_view meaning = kLooks[fill].meaning;
      put("<rect x=\"{:g}\" y=\"{:g}\" width=\"9\" height=\"9\" fill=\"{}\"/><text x=\"{:g}\" y=\"{:g}\">{}</text>\n",
          x, y_, kLooks[fill].colour, x + 13, y_ + 8.5, meaning);
      x += 25 + kLetter * double(meaning.size());
    }
    y_ += kLine;
  }

  const Picture& picture_;
  const double margin_;
  std::string body_;
  std::array<bool, kFills> used_{};
  double y_ = 0;
};

}  // namespace

Fill fill_of(Verb verb, int chunk, bool whole) {
  const auto of_chunk = [&](Fill even) { return chunk % 2 == 1 ? Fill(int(even) + int(Fill::odd_forward)) : even; };
  switch (verb) {
    case Verb::forward: return of_chunk(Fill::forward);
    case Verb::backward_input: return of_chunk(whole ? Fill::backward : Fill::backward_input);
    case Verb::backward_weight: return of_chunk(Fill::backward_weight);
    case Verb::recompute: return Fill::recompute;
    case Verb::send_act:
    case Verb::recv_act:
    case Verb::send_grad:
    case Verb::recv_grad: return Fill::message;
    case Verb::gather:
    case Verb::reduce:
    case Verb::tie: return Fill::collective;
    case Verb::agree:
    case Verb::vote: return Fill::agreement;
    default: return Fill::other;
  }
}

void draw_svg(std::ostream& out, const Picture& p) { Drawing(p).print(out); }

}  // namespace trainer
