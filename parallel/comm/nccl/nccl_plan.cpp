#include "parallel/comm/nccl/nccl_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainer {
namespace {

using Use = std::pair<Axis, Lane>;

// The world's own communicator comes first. Blocks sum and gather over tp; a reduce sums what tp and kv hold alike,
// then over the replicas; weights are gathered after an update, or before their use.
std::vector<Use> uses(int zero, bool votes) {
  std::vector<Use> u{{Axis::world, Lane::compute},
                     {Axis::tp, Lane::compute},
                     {Axis::tp, Lane::reduce},
                     {Axis::kv, Lane::reduce},
                     {Axis::tied, Lane::reduce}};
  if (zero == 0) u.push_back({Axis::dp, Lane::reduce});
  else u.insert(u.end(), {{Axis::shard, Lane::gather}, {Axis::shard, Lane::reduce}, {Axis::replica, Lane::reduce}});
  if (votes) u.push_back({Axis::world, Lane::vote});
  return u;
}

std::vector<Mesh> all_ranks(const Mesh& m) {
  std::vector<Mesh> all(size_t(m.size()));
  for (int s = 0; s < m.pp; ++s)
    for (int r = 0; r < m.dp; ++r)
      for (int c = 0; c < m.cp; ++c)
        for (int t = 0; t < m.tp; ++t) {
          const Mesh at = m.at_stage(s).at_replica(r).at_context(c).at_slice(t);
          all[size_t(at.rank())] = at;
        }
  return all;
}

// A stage that holds no tied parameter is in no group of the axis.
bool belongs(const GroupName& g, const Mesh& m) { return g.members[size_t(g.rank)] == m.rank(); }

// How an axis divides the world: by rank, the first member and the place of the rank; {-1, 0} where it is alone.
using Division = std::vector<std::pair<int, int>>;
Division division(const std::vector<Mesh>& all, const Stages& stages, Axis axis) {
  Division d;
  for (const Mesh& m : all) {
    const GroupName g = group_of(m, stages, axis);
    const bool in = g.size() > 1 && belongs(g, m);
    d.emplace_back(in ? g.members[0] : -1, in ? g.rank : 0);
  }
  return d;
}

void plan_axes(NcclPlan& plan, const Mesh& mesh, const Stages& stages, const std::vector<Use>& uses) {
  const std::vector<Mesh> all = all_ranks(mesh);
  std::map<std::pair<Lane, Division>, int> opened;
  for (const Use& use : uses) {
    const auto [axis, lane] = use;
    Division d = division(all, stages, axis);
    if (std::all_of(d.begin(), d.end(), [](const auto& of) { return of.first < 0; })) continue;
    const bool in = d[size_t(mesh.rank())].first >= 0;
    const int next = axis == Axis::world && lane == Lane::compute ? NcclPlan::kWorld : int(plan.splits.size());
    const auto [at, is_new] = opened.try_emplace({lane, std::move(d)}, next);
    plan.axes[use] = at->second;
    if (!is_new || next == NcclPlan::kWorld) continue;
    plan.splits.emplace_back();
    if (!in) continue;
    plan.splits.back().group = group_of(mesh, stages, axis);
    plan.splits.back().name = fmt::format("{}, lane {}", plan.splits.back().group.key, name_of(lane));
  }
}

void plan_pipes(NcclPlan& plan, const Mesh& mesh, const Stages& stages) {
  struct Round {
    int split;
    std::vector<int> stages;
  };
  std::vector<Round> rounds;
  const auto open = [&](const NcclPlan::Pipe& pipe) {
    if (pipe.from == pipe.to || plan.pipes.contains(pipe)) return;
    const auto free = [&](const Round& r) {
      return std::none_of(r.stages.begin(), r.stages.end(), [&](int s) { return s == pipe.from || s == pipe.to; });
    };
    auto round = std::find_if(rounds.begin(), rounds.end(), free);
    if (round == rounds.end()) {
      round = rounds.insert(rounds.end(), {int(plan.splits.size()), {}});
      plan.splits.emplace_back().pipe = true;
    }
    round->stages.insert(round->stages.end(), {pipe.from, pipe.to});
    plan.pipes[pipe] = round->split;
    if (mesh.stage != pipe.from && mesh.stage != pipe.to) return;
    NcclPlan::Split& split = plan.splits[size_t(round->split)];
    split.group = pipe_group(mesh, pipe.from, pipe.to, pipe.gradient);
    split.name = split.group.key;
  };
  for (int p = 0; p + 1 < stages.positions(); ++p) {
    const int low = stages.owner(p).stage, high = stages.owner(p + 1).stage;
    open({low, high, stages.on_gradient_lane(low, high, false)});
    open({high, low, stages.on_gradient_lane(high, low, true)});
  }
}

}  // namespace

NcclPlan plan_nccl(const Mesh& mesh, const Stages& stages, int zero, bool votes) {
  NcclPlan plan;
  plan_axes(plan, mesh, stages, uses(zero, votes));
  plan_pipes(plan, mesh, stages);
  return plan;
}

}  // namespace trainer
