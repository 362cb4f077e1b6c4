#include "core/plan/mesh.h"

#include "core/base/error.h"

namespace trainer {

Mesh Mesh::of(const ParallelSpec& p, int world, int rank) {
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
  check(rank >= 0 && rank < world, Exit::spec, "[mesh] rank {} in a world of {}", rank, world);
  m.slice = rank % m.tp;
  m.context = rank / m.tp % m.cp;
  m.replica = rank / (m.tp * m.cp) % m.dp;
  m.stage = rank / (m.tp * m.cp * m.dp);
  return m;
}

}  // namespace trainer
