// What a rank of a group works on and moves in a collective: the closed forms that plans count and communicators keep.
//
// "Moved" are bytes that one rank reads from or writes to the others: (n - 1) / n of the whole for all_gather and
// reduce_scatter; for all_reduce twice that, by slices (Thakur, Rabenseifner, Gropp 2005, section 4).
#pragma once
#include <algorithm>

#include "core/tensor/tensor.h"

namespace trainer {

struct Slice {
  int64_t begin = 0, end = 0;
};
// The elements that rank `rank` of `size` sums in an all_reduce of n: slices begin on multiples of 64 elements.
constexpr Slice own_slice(int64_t n, int size, int rank) {
  constexpr int64_t kCut = 64;
  const int64_t cuts = (n + kCut - 1) / kCut;
  return {std::min(n, cuts * rank / size * kCut), std::min(n, cuts * (rank + 1) / size * kCut)};
}

constexpr int64_t moved_by_gather(int64_t full_bytes, int size) { return full_bytes / size * (size - 1); }
constexpr int64_t moved_by_scatter(int64_t full_bytes, int size) { return full_bytes / size * (size - 1); }
constexpr int64_t moved_by_all_reduce(int64_t n, DType dtype, int size, int rank) {
  const Slice s = own_slice(n, size, rank);
  return 2 * (size - 1) * (s.end - s.begin) * int64_t(size_of(dtype));
}

}  // namespace trainer
