// What papers say of a schedule, to stand beside what the clock says. Sources: Narayanan et al. 2021 (1f1b,
// interleaved), Qi et al. 2024, arXiv 2401.10241 and 2405.15362 (zb_*), DeepSeek-V3 (dualpipe_v).
#pragma once
#include <optional>

#include "core/plan/schedule.h"

namespace trainer {

struct ClosedForm {
  double bubble_rate =
      0;  // of the busiest stage, as in ScheduleTimes; the way between stages counts in `interleaved` alone
  std::vector<double> peaks;  // per stage, in the unit of Limits::kept and Limits::owed
};

// Nothing where no formula is known for the shape: zb_auto and custom, and too few micro-batches to fill the pipeline.
// Peaks hold where `owed` is at most `kept`; bubbles of zb_h1 and zb_h2 where w is at most f and b, that of zb_v where
// f, b and w are equal; that of dualpipe_v is an upper bound, for it takes forward and backward side by side to last as
// long as both.
std::optional<ClosedForm> closed_form(const Schedule&, const PipeShape&);

}  // namespace trainer
