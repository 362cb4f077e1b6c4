#include "parallel/schedules/schedules.h"

#include "core/base/error.h"

namespace trainer {
namespace {

struct Row {
  PipelineKind kind;
  Schedule schedule;
};
constexpr Row kSchedules[] = {{PipelineKind::gpipe, {"gpipe", gpipe, looped}},
                              {PipelineKind::one_f_one_b, {"1f1b", one_f_one_b, looped}},
                              {PipelineKind::interleaved, {"interleaved", interleaved, looped}},
                              {PipelineKind::zb_h1, {"zb_h1", zb_h1, looped}},
                              {PipelineKind::zb_v, {"zb_v", zb_v, vee}}};

}  // namespace

const Schedule& find_schedule(PipelineKind kind) {
  for (const Row& r : kSchedules)
    if (r.kind == kind) return r.schedule;
  fail(Exit::spec, "[pipeline] this schedule is not built yet: use gpipe, 1f1b, interleaved, zb_h1 or zb_v");
}

int looped(const PipeShape& p, int stage, int chunk) { return chunk * p.stages + stage; }
int vee(const PipeShape& p, int stage, int chunk) { return chunk == 0 ? stage : 2 * p.stages - 1 - stage; }

void require_chunks(const PipeShape& p, int wanted, std::string_view schedule) {
  check(p.chunks == wanted, Exit::spec, "[pipeline] {} needs virtual_stages {}, found {}", schedule, wanted, p.chunks);
}

}  // namespace trainer
