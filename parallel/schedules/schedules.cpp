#include "parallel/schedules/schedules.h"

#include "core/base/error.h"

namespace trainer {
namespace {

struct Row {
  PipelineKind kind;
  std::string_view name;
  Orders (*plan)(const PipeShape&, const Limits&);
  Placement placement = Placement::looped;
};
constexpr Row kSchedules[] = {{PipelineKind::gpipe, "gpipe", gpipe},
                              {PipelineKind::one_f_one_b, "1f1b", one_f_one_b},
                              {PipelineKind::interleaved, "interleaved", interleaved},
                              {PipelineKind::zb_h1, "zb_h1", zb_h1},
                              {PipelineKind::zb_h2, "zb_h2", zb_h2},
                              {PipelineKind::zb_v, "zb_v", zb_v, Placement::vee},
                              {PipelineKind::zb_auto, "zb_auto", zb_auto},
                              {PipelineKind::dualpipe_v, "dualpipe_v", dualpipe_v, Placement::vee}};
constexpr std::string_view kCustom = "custom:";

Schedule schedule_of(const Row& r) { return {r.name, r.plan, chunks_of(r.kind), r.placement}; }
Schedule schedule_in(std::string file) {
  Schedule s{"custom", custom, chunks_of(PipelineKind::custom), read_orders(file).placement};
  s.limits.file = std::move(file);
  return s;
}

}  // namespace

Schedule find_schedule(const PipelineSpec& spec) {
  for (const Row& r : kSchedules)
    if (r.kind == spec.schedule) return schedule_of(r);
  return schedule_in(spec.file);
}

Schedule find_schedule(std::string_view name) {
  std::string names;
  if (name == "interleaved_1f1b") name = "interleaved";  // as Megatron calls it
  for (const Row& r : kSchedules) {
    if (r.name == name) return schedule_of(r);
    names += fmt::format("{}, ", r.name);
  }
  check(name.starts_with(kCustom), Exit::spec, "[pipeline] there is no schedule `{}`: use one of {}custom:FILE", name,
        names);
  return schedule_in(std::string(name.substr(kCustom.size())));
}

}  // namespace trainer
