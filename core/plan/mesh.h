// A rank's coordinates on the axes pp, dp, cp, tp: arithmetic, no state.
#pragma once
#include <array>

#include "core/spec/run_spec.h"

namespace trainer {

struct Mesh {
  int pp = 1, dp = 1, cp = 1, tp = 1;                  // sizes
  int stage = 0, replica = 0, context = 0, slice = 0;  // this rank's coordinates on them
  int shards = 1;                                      // ranks of a shard group: neighbours on dp; divides dp (ZeRO-0: all of dp)
  int kv_copies = 1;                                   // ranks of tp that hold the same kv head; divides tp
  std::array<int, 4> strides{1, 1, 1, 1};              // of pp, dp, cp, tp in the rank's number: parallel.order

  // Throws Error(spec) where the degrees do not divide `world`.
  static Mesh of(const RunSpec&, int world, int rank);
  int size() const { return pp * dp * cp * tp; }
  int rank() const { return stage * strides[0] + replica * strides[1] + context * strides[2] + slice * strides[3]; }

  int shard() const { return replica % shards; }  // of its shard group

  // The same place elsewhere on an axis.
  Mesh at_stage(int s) const { return with(&Mesh::stage, s); }
  Mesh at_replica(int r) const { return with(&Mesh::replica, r); }
  Mesh at_context(int c) const { return with(&Mesh::context, c); }
  Mesh at_slice(int s) const { return with(&Mesh::slice, s); }
  // Stage `s` of a world that has one rank per stage: ranks of one stage run one list.
  Mesh stage_alone(int s) const;

 private:
  Mesh with(int Mesh::*coordinate, int value) const {
    Mesh m = *this;
    m.*coordinate = value;
    return m;
  }
};

// Ranks of tp that share a kv head: heads are replicated where tp is a multiple of them, padded where it is not.
constexpr int kv_copies(int64_t tp, int64_t kv_heads) {
  return tp > kv_heads && tp % kv_heads == 0 ? int(tp / kv_heads) : 1;
}

}  // namespace trainer
