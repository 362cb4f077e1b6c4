// All cells of the parity grids, in an order that mixes their axes: the first cells of it are a covering subset.
#pragma once
#include "tests/ranks/layouts.h"

namespace trainer::test {

std::vector<Layout> layout_grid();    // tp, sequence parallel, dp, ZeRO, accumulation, recompute; both families
std::vector<Layout> pipeline_grid();  // and every schedule, stages, chunks, micro-batches

// Schedules, with a number of chunks that they run.
struct Pipe {
  PipelineKind schedule;
  int chunks;
};
inline constexpr Pipe kPipes[] = {
    {PipelineKind::gpipe, 1},       {PipelineKind::one_f_one_b, 1}, {PipelineKind::interleaved, 1},
    {PipelineKind::interleaved, 2}, {PipelineKind::zb_h1, 1},       {PipelineKind::zb_h2, 1},
    {PipelineKind::zb_v, 2},        {PipelineKind::zb_auto, 1},     {PipelineKind::dualpipe_v, 2}};

}  // namespace trainer::test
