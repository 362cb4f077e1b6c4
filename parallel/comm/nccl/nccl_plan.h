// Which communicators a world opens, in which order, and who is in them: arithmetic, the same on every rank, for a
// split of the world is an operation of all its ranks.
#pragma once
#include <map>
#include <optional>
#include <utility>

#include "parallel/groups.h"

namespace trainer {

struct NcclPlan {
  // One for every ncclCommSplit of the world: the communicator that this rank gets from it, if it gets one.
  struct Split {
    std::string name;  // of the first it is for: "tp of rank 0, lane compute"
    GroupName group;   // no members: this rank takes no part
    bool pipe = false;
  };
  std::vector<Split> splits;
  static constexpr int kWorld = -1;  // no split: the world's own communicator
  // By what they serve: an index of splits, or kWorld. Groups of the same ranks on the same lane share a communicator.
  std::map<std::pair<Axis, Lane>, int> axes;
  struct Pipe {
    int from, to;
    bool gradient;
    auto operator<=>(const Pipe&) const = default;
  };
  std::map<Pipe, int> pipes;
};

// For axes that have several ranks, on the lanes where they communicate under `zero`, and the world's votes where there
// are any, and for the pipes between neighbouring positions. Pairs of stages that have no stage in common come from one
// split.
NcclPlan plan_nccl(const Mesh&, const Stages&, int zero, bool votes = false);

}  // namespace trainer
