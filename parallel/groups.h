// Who belongs to a group: arithmetic, the same on every rank.
#pragma once
#include <string>
#include <vector>

#include "core/plan/stages.h"

namespace trainer {

struct GroupName {
  std::string key;  // unique in the world per group; a communicator adds its lane
  int rank = 0;
  std::vector<int> members;  // ranks of the world, in the group's order: members[rank] is this one
  int size() const { return int(members.size()); }
};
// Throws Error(spec) for an axis that is not built.
GroupName group_of(const Mesh&, const Stages&, Axis);
// The pair of stages at the two ends of a pipe; `from` is rank 0.
GroupName pipe_group(const Mesh&, int from, int to, bool gradient);

}  // namespace trainer
