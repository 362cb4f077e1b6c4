#include "parallel/schedules/closed_form.h"

#include <algorithm>

namespace trainer {
namespace {

double rate(const PipeShape& p, const Limits& l, double bubble) {
  return bubble / (p.microbatches * (l.f + l.b + l.w) + bubble);
}

template <class Peak>
std::vector<double> peaks(const PipeShape& p, Peak peak) {
  std::vector<double> all;
  for (int s = 0; s < p.stages; ++s) all.push_back(peak(s));
  return all;
}

ClosedForm zb_h_form(const PipeShape& p, const Limits& l, int depth) {
  const double bubble = std::max(0.0, (p.stages - 1) * (l.f + l.b - depth * l.w));
  return {rate(p, l, bubble),
          peaks(p, [&](int s) { return (depth * (p.stages - s) - depth + 1) * l.kept + depth * s * l.owed; })};
}

// The way between stages as the zero-bubble paper counts it; on the clock, whose stages wait for what they receive, a
// step costs stages x comm more.
ClosedForm interleaved_form(const PipeShape& p, const Limits& l) {
  const double v = p.chunks, stages = p.stages, whole = l.f + l.b + l.w;
  const double bubble = (stages - 1) / v * whole + (2 * stages * v - stages - 2) * l.comm;
  return {rate(p, l, bubble), peaks(p, [&](int s) {
            const int chunks = 2 * (p.stages - s - 1) + (p.chunks - 1) * p.stages + 1;
            return std::min(chunks, p.microbatches * p.chunks) * l.kept / v;
          })};
}

}  // namespace

std::optional<ClosedForm> closed_form(const Schedule& schedule, const PipeShape& p) {
  const Limits& l = schedule.limits;
  const int m = p.microbatches, stages = p.stages;
  const double whole = l.f + l.b + l.w;
  const std::string_view name = schedule.name;
  if (name == "gpipe") return {{rate(p, l, (stages - 1) * whole), peaks(p, [&](int) { return m * l.kept; })}};
  if (name == "1f1b")
    return {{rate(p, l, (stages - 1) * whole), peaks(p, [&](int s) { return std::min(m, stages - s) * l.kept; })}};
  if (name == "interleaved" && m % stages == 0) return interleaved_form(p, l);
  if (name == "zb_h1" && m >= stages) return zb_h_form(p, l, 1);
  if (name == "zb_h2" && m >= 2 * stages - 1) return zb_h_form(p, l, 2);
  if (name == "zb_v" && m >= 2 * stages - 1) return {{0, peaks(p, [&](int) { return stages * l.kept; })}};
  if (name == "dualpipe_v" && m >= 2 * stages)
    return {{rate(p, l, (stages - 1) * (l.f + 2 * l.b - l.w) / 2),
             peaks(p, [&](int) { return (2 * stages + 1) * l.kept / 2; })}};
  return {};
}

}  // namespace trainer
