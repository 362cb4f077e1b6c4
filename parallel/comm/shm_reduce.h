// Sums and maxima over the tensors of several ranks: in the order given, in fp32 (f64 for f64), rounded once. The
// result depends on the values and their order only, not on how the work is cut.
#pragma once
#include <span>

#include "core/device/comm.h"

namespace trainer {

struct Reduction {
  Comm::Reduce op = Comm::Reduce::sum;
  DType dtype = DType::f32;  // f32, f64, bf16; i32 and i64 as well, which wrap around
};
// Throws Error(rank) for a dtype that has no sum.
void check_reduces(const Reduction&);
// Every to[k][i] = from[0][i] + from[1][i] + ..., for i in [0, elements). A `to` may be one of `from`, or disjoint from
// all. Of a maximum, NaN wins.
void reduce(const Reduction&, std::span<const std::byte* const> from, std::span<std::byte* const> to, int64_t elements);

}  // namespace trainer
