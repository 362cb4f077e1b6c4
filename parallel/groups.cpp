#include "parallel/groups.h"

#include "core/base/error.h"

namespace trainer {

GroupName group_of(const Mesh& m, const Stages& stages, Axis axis) {
  switch (axis) {
    case Axis::world: return {"world", m.rank(), m.size()};
    case Axis::dp:
    case Axis::shard: return {fmt::format("dp of stage {}", m.stage), m.replica, m.dp};
    case Axis::tied: {
      const int first = stages.owner(0).stage, last = stages.owner(stages.positions() - 1).stage;
      return {fmt::format("tied of replica {}", m.replica), m.stage == first ? 0 : 1, first == last ? 1 : 2};
    }
    case Axis::tp: return {fmt::format("tp of rank {}", m.rank() - m.slice), m.slice, m.tp};
    case Axis::cp: return {fmt::format("cp of rank {}", m.rank() - m.context * m.tp), m.context, m.cp};
    default: fail(Exit::spec, "[groups] axis {} has no group yet", int(axis));
  }
}

GroupName pipe_group(const Mesh& m, int from, int to, bool gradient) {
  return {fmt::format("{} {}>{} of replica {}", gradient ? "grad" : "act", from, to, m.replica),
          m.stage == from ? 0 : 1, 2};
}

}  // namespace trainer
