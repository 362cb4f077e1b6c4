#include <algorithm>

#include "core/model/model.h"
#include "core/plan/buckets.h"
#include "parallel/passes/passes.h"

namespace trainer {

Code snapshot(Code code, const PlanContext& c, const Program& p) {
  if (c.key.kind != StepKind::train_and_snapshot && c.key.kind != StepKind::snapshot) return code;
  Code slices;
  for (int b = 0; b < int(p.buckets.size()); ++b)
    for (Role r : saved_roles(c.spec.precision))
      if (find_state(p, b, kStaging + int(r))) {
        slices.push_back(on_bucket(Verb::snapshot, Lane::copy, b));
        slices.back().slice = int16_t(r);
      }
  if (c.key.kind == StepKind::snapshot) return slices;
  const auto is_forward = [](const Instr& i) { return i.verb == Verb::forward; };
  const auto forwards = size_t(std::count_if(code.begin(), code.end(), is_forward));
  Code out;
  size_t seen = 0, done = 0;
  for (const Instr& i : code) {
    out.push_back(i);
    if (!is_forward(i)) continue;
    for (++seen; done < slices.size() * seen / forwards; ++done) out.push_back(slices[done]);
  }
  return out;
}

}  // namespace trainer
