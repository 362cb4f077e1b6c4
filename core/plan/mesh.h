// A rank's coordinates on the axes pp, dp, cp, tp: arithmetic, no state.
#pragma once
#include "core/spec/run_spec.h"

namespace trainer {

struct Mesh {
  int pp = 1, dp = 1, cp = 1, tp = 1;                  // sizes
  int stage = 0, replica = 0, context = 0, slice = 0;  // this rank's coordinates on them
  // Throws Error(spec) where the degrees do not divide `world`. tp varies fastest, then cp, dp, pp.
  static Mesh of(const ParallelSpec&, int world, int rank);
  Mesh at(int stage_, int replica_) const {
    Mesh m = *this;
    m.stage = stage_;
    m.replica = replica_;
    return m;
  }
  int size() const { return pp * dp * cp * tp; }
  int rank() const { return ((stage * dp + replica) * cp + context) * tp + slice; }
};

}  // namespace trainer
