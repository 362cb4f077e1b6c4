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
// Of an axis that needs the mesh only: not of tied.
GroupName group_of(const Mesh&, Axis);
// Of any. Both throw Error(spec) for an axis that is not built.
GroupName group_of(const Mesh&, const Stages&, Axis);
// The pair of stages at the two ends of a pipe; `from` is rank 0.
GroupName pipe_group(const Mesh&, int from, int to, bool gradient);
// Of one end of a pipe.
constexpr Lane pipe_lane(bool sends, bool gradient) {
  if (sends) return gradient ? Lane::send_grad : Lane::send_act;
  return gradient ? Lane::recv_grad : Lane::recv_act;
}

}  // namespace trainer
