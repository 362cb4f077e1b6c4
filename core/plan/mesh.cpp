#include "core/plan/mesh.h"

#include "core/base/error.h"

namespace trainer {
namespace {

// Of pp, dp, cp, tp: how many ranks lie between neighbours on that axis. `order` names the innermost first.
std::array<int, 4> strides_of(const std::vector<std::string>& order, const Mesh& m) {
  std::array<int, 4> strides{1, 1, 1, 1};
  int stride = 1;
  for (const std::string& axis : order) {
    const size_t a = axis == "pp" ? 0 : axis == "dp" ? 1 : axis == "cp" ? 2 : 3;
    strides[a] = stride;
    stride *= std::array{m.pp, m.dp, m.cp, m.tp}[a];
  }
  return strides;
}

}  // namespace

Mesh Mesh::of(const RunSpec& spec, int world, int rank) {
  const ParallelSpec& p = spec.parallel;
  const int64_t fixed = p.pp * p.cp * p.tp;
  check(fixed >= 1 && world % fixed == 0, Exit::spec,
        "[mesh] pp {} x cp {} x tp {} does not divide a world of {} ranks: use a multiple of {}", p.pp, p.cp, p.tp,
        world, fixed);
  Mesh m;
  m.pp = int(p.pp);
  m.cp = int(p.cp);
  m.tp = int(p.tp);
  m.dp = int(p.dp.value_or(world / fixed));
  check(m.size() == world, Exit::spec, "[mesh] parallel.dp {} needs {} ranks, the world has {}: set dp to {} or auto",
        m.dp, m.size(), world, world / fixed);
  check(rank >= 0 && rank < world, Exit::usage, "[mesh] wanted a rank from 0 to {}, found {}", world - 1, rank);
  m.shards = p.zero == 0 ? m.dp : int(p.zero_shard.value_or(m.dp));
  check(m.shards >= 1 && m.dp % m.shards == 0, Exit::spec,
        "[mesh] parallel.zero_shard {} does not divide dp {}: use a divisor of {}, or all", m.shards, m.dp, m.dp);
  m.kv_copies = trainer::kv_copies(m.tp, spec.model.num_kv_heads);
  m.strides = strides_of(p.order, m);
  m.stage = rank / m.strides[0] % m.pp;
  m.replica = rank / m.strides[1] % m.dp;
  m.context = rank / m.strides[2] % m.cp;
  m.slice = rank / m.strides[3] % m.tp;
  return m;
}

Mesh Mesh::stage_alone(int s) const {
  Mesh m;
  m.pp = pp;
  m.stage = s;
  return m;
}

}  // namespace trainer
