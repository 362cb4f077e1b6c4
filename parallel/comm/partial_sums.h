// Sums that are handed from host to host: in the accumulator's dtype (fp32 for bf16, else the tensor's own), so that
// the whole is rounded once, on the last host, and equals what one host would have made of it.
#pragma once
#include "parallel/comm/shm_reduce.h"

namespace trainer {

DType accumulator_of(DType);
// to = before + from[0] + from[1] + ...; `before` is null on the first host. `before` and `to` are accumulators.
void add_partial(const Reduction&, const std::byte* before, std::span<const std::byte* const> from, std::byte* to,
                 int64_t elements);
// The same, rounded to the tensor's dtype. `to` may be one of `from`.
void finish_partial(const Reduction&, const std::byte* before, std::span<const std::byte* const> from, std::byte* to,
                    int64_t elements);

}  // namespace trainer
