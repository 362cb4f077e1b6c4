// Bars on tracks, time to the right, as SVG: what schedules, plans on a clock and runs are drawn with.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace trainer {

// What a bar is. The passes of odd chunks are paler than those of even ones.
enum class Fill : uint8_t {
  forward,
  backward,  // whole; below, its halves
  backward_input,
  backward_weight,
  odd_forward,
  odd_backward,
  odd_backward_input,
  odd_backward_weight,
  recompute,
  message,
  collective,
  agreement,
  other
};
// `whole`: of a backward_input that does the weight half too.
Fill fill_of(Verb, int chunk, bool whole = false);

struct Bar {
  double begin = 0, end = 0;
  Fill fill = Fill::other;
};
struct Label {  // is written in the middle of its time, where there is room
  double begin = 0, end = 0;
  std::string text;
};
struct Track {
  std::string name;
  double height = 18;
  std::vector<Bar> bars;
  std::vector<Label> labels;
};
struct Panel {  // as wide as the others, however long it takes
  std::vector<Track> tracks;
  double makespan = 0;  // in the unit of bars, which begin at 0
  std::string title;    // "": none
  std::string unit;     // of the axis below; "": no axis
};
struct Picture {
  std::string title;
  std::vector<Panel> panels;
  bool fine = false;    // of many short bars: thin seams between them
  bool legend = false;  // of the fills that occur
};
// Texts are not escaped: REQUIRES that they have no markup.
void draw_svg(std::ostream&, const Picture&);

}  // namespace trainer
