// A task of attention as its kernels see it: one kv head of one sequence, and the query heads that read it.
//
// Included by units built for newer CPUs than the rest: everything here is inlined or has internal linkage.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/tensor/bf16.h"

namespace trainer::cpu {

// Of one sequence; row t starts t * stride elements behind `data`. The group's head g starts g * width elements
// further.
struct HeadRows {
  std::byte* data = nullptr;
  int64_t stride = 0;
};

template <class T>
[[gnu::always_inline]] inline T* data_of(HeadRows rows, int64_t row = 0) {
  return reinterpret_cast<T*>(rows.data) + row * rows.stride;
}

struct AttentionJob {
  int64_t length = 0, width = 0, heads = 0;  // T, D, query heads in the group
  HeadRows q, k, v, out, d_out, d_q, d_k, d_v;
  float* lse = nullptr;               // [heads, T], base 2
  const int32_t* segments = nullptr;  // [T] or none
  int64_t window = 0;                 // > 0: none is given as T, which hides nothing
  float scale = 0;
  int64_t begin = 0, end = 0;  // forward: the queries to do, `begin` a multiple of kTile
};

inline constexpr float kLog2E = 1.44269504088896341f, kLn2 = 0.693147180559945309f;
inline constexpr float kHidden = -1e30f;     // a score that no softmax sees; finite, so that no NaN comes of it
inline constexpr int64_t kRegisterRows = 6;  // rows of a register tile
inline constexpr int64_t kTile = 96;         // queries of a tile, of both paths

[[gnu::always_inline]] inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
[[gnu::always_inline]] inline int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }
[[gnu::always_inline]] inline int64_t round_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}
[[gnu::always_inline]] inline int64_t round_down(int64_t x, int64_t multiple) { return x / multiple * multiple; }

// What the queries [q, q + queries) see of the keys [k, k + keys).
enum class Sight : uint8_t { nothing, some, all };

[[gnu::always_inline]] inline Sight sight(const AttentionJob& job, int64_t q, int64_t queries, int64_t k,
                                          int64_t keys) {
  const int64_t last_query = q + queries - 1, last_key = k + keys - 1;
  if (k > last_query || q - last_key >= job.window) return Sight::nothing;
  bool all = last_key <= q && last_query - k < job.window;
  if (job.segments) {
    int32_t query_low = job.segments[q], query_high = query_low, key_low = job.segments[k], key_high = key_low;
    for (int64_t i = q; i <= smaller(last_query, job.length - 1); ++i) {
      query_low = job.segments[i] < query_low ? job.segments[i] : query_low;
      query_high = job.segments[i] > query_high ? job.segments[i] : query_high;
    }
    for (int64_t i = k; i <= smaller(last_key, job.length - 1); ++i) {
      key_low = job.segments[i] < key_low ? job.segments[i] : key_low;
      key_high = job.segments[i] > key_high ? job.segments[i] : key_high;
    }
    if (query_high < key_low || key_high < query_low) return Sight::nothing;
    all = all && query_low == query_high && key_low == key_high;
  }
  return all ? Sight::all : Sight::some;
}

// Keys [begin, end) of the `keys` from k on that a register tile of queries from q on may see; `begin` is a multiple of
// `panel`, and at most the first key of any six keys, six by six, that one of the queries sees.
struct KeyRange {
  int64_t begin, end;
};
[[gnu::always_inline]] inline KeyRange seen_keys(const AttentionJob& job, int64_t q, int64_t k, int64_t keys,
                                                 int64_t panel) {
  const int64_t first = q - job.window + 1 - k - (kRegisterRows - 1);
  return {first > 0 ? round_down(smaller(first, keys), panel) : 0, smaller(keys, q + kRegisterRows - k)};
}

}  // namespace trainer::cpu
