// A clocked schedule as a drawing: a line per stage, time to the right.
#pragma once
#include <iosfwd>

#include "app/plan_schedule.h"

namespace trainer {

// At most `width` columns. Letters say what runs (F forward, B backward, I and W its halves; the odd chunks' in small
// letters), digits behind them which micro-batch, where there is room; `.` is waiting.
void draw_ascii(std::ostream&, const ClockedSchedule&, int width);

void draw_svg(std::ostream&, const ClockedSchedule&);

}  // namespace trainer
