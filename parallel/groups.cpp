#include "parallel/groups.h"

#include "core/base/error.h"

namespace trainer {
namespace {

// Members at coordinates begin, begin + step, ... of one axis; `mine` is this rank's place among them.
template <class At>
GroupName along(std::string_view name, int mine, int size, At&& at) {
  GroupName g;
  g.rank = mine;
  for (int i = 0; i < size; ++i) g.members.push_back(at(i).rank());
  g.key = fmt::format("{} of rank {}", name, g.members[0]);
  return g;
}

}  // namespace

GroupName group_of(const Mesh& m, Axis axis) {
  const std::string_view name = name_of(axis);
  switch (axis) {
    case Axis::world: {
      GroupName g{"world", m.rank(), {}};
      for (int r = 0; r < m.size(); ++r) g.members.push_back(r);
      return g;
    }
    case Axis::pp: return along(name, m.stage, m.pp, [&](int i) { return m.at_stage(i); });
    case Axis::dp: return along(name, m.replica, m.dp, [&](int i) { return m.at_replica(i); });
    case Axis::shard: {
      const int first = m.replica / m.shards * m.shards;
      return along(name, m.replica - first, m.shards, [&](int i) { return m.at_replica(first + i); });
    }
    case Axis::replica: {
      const int first = m.replica % m.shards;
      return along(name, m.replica / m.shards, m.dp / m.shards,
                   [&](int i) { return m.at_replica(first + i * m.shards); });
    }
    case Axis::cp: return along(name, m.context, m.cp, [&](int i) { return m.at_context(i); });
    case Axis::tp: return along(name, m.slice, m.tp, [&](int i) { return m.at_slice(i); });
    case Axis::kv: {
      const int first = m.slice / m.kv_copies * m.kv_copies;
      return along(name, m.slice - first, m.kv_copies, [&](int i) { return m.at_slice(first + i); });
    }
    default: fail(Exit::spec, "[groups] axis {} has no group yet", name);
  }
}

GroupName group_of(const Mesh& m, const Stages& stages, Axis axis) {
  if (axis != Axis::tied) return group_of(m, axis);
  const int first = stages.owner(0).stage, last = stages.owner(stages.positions() - 1).stage;
  return along(name_of(axis), m.stage == first ? 0 : 1, first == last ? 1 : 2,
               [&](int i) { return m.at_stage(i == 0 ? first : last); });
}

GroupName pipe_group(const Mesh& m, int from, int to, bool gradient) {
  GroupName g{{}, m.stage == from ? 0 : 1, {m.at_stage(from).rank(), m.at_stage(to).rank()}};
  g.key = fmt::format("{} from rank {} to rank {}", gradient ? "grad" : "act", g.members[0], g.members[1]);
  return g;
}

}  // namespace trainer
