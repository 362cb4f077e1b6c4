// One new token per sequence against a cache: dot products, an online softmax over blocks of keys, sums of values.
#pragma once
#include <cstdint>

namespace trainer::cpu {

inline constexpr int64_t kDecodeBlock = 64;  // keys whose weights are known before their values are added

// The query heads of one kv head of one sequence; `keys` and `values` are the rows [0, count) that they see.
template <class T>
struct DecodeJob {
  const T *q, *keys, *values;
  T* out;
  int64_t heads, width, row, count;  // `row`: elements from one row of the cache to the next
  float scale;
  float *sums, *weights, *top, *total;  // scratch: [heads, width], [heads, kDecodeBlock], [heads], [heads]
};

}  // namespace trainer::cpu
