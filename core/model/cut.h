// How a dimension of a tensor is cut over the ranks of tp, and how heads are: arithmetic.
#pragma once
#include <algorithm>

#include "core/plan/mesh.h"

namespace trainer {

// Elements [begin, end) of a dimension of `whole` lie at the beginning of `room` here; the rest of the room is padding.
struct Cut {
  int64_t whole = 0, begin = 0, end = 0, room = 0;
  constexpr int64_t size() const { return end - begin; }
  // The same for each element as a run of `n`.
  constexpr Cut times(int64_t n) const { return {whole * n, begin * n, end * n, room * n}; }
  // The same as a part of a longer dimension, from `at` on.
  constexpr Cut within(int64_t longer, int64_t at) const { return {longer, at + begin, at + end, room}; }
};
constexpr Cut uncut(int64_t n) { return {n, 0, n, n}; }
// Rank `slice` of `ranks` holds the slice-th run of ceil(n / ranks); the last ones may hold less, or nothing.
constexpr Cut even_cut(int64_t n, int64_t slice, int64_t ranks) {
  const int64_t room = (n + ranks - 1) / ranks;
  return {n, std::min(n, slice * room), std::min(n, (slice + 1) * room), room};
}

// Query and kv heads of a rank. Every kv head stands mesh.kv_copies times, on neighbouring ranks that share the query
// heads of its group; copies, and the heads of a group over its copies, are cut evenly.
struct HeadCuts {
  Cut q, kv;
};
constexpr HeadCuts cut_heads(int64_t heads, int64_t kv_heads, const Mesh& mesh) {
  const int64_t copies = mesh.kv_copies, group = heads / kv_heads;
  const Cut kv = even_cut(kv_heads, mesh.slice / copies, mesh.tp / copies);
  if (copies == 1) return {kv.times(group), kv};
  const Cut part = even_cut(group, mesh.slice % copies, copies);  // tp = copies * kv_heads: one kv head
  return {part.within(heads, kv.begin * group), kv};
}

}  // namespace trainer
