// Interleaved 1F1B (Narayanan et al. 2021): chunks in turn, as many micro-batches at a time as there are stages.
#include <algorithm>

#include "core/base/error.h"
#include "parallel/schedules/schedules.h"

namespace trainer {

std::vector<Action> interleaved(const PipeShape& p, const Limits&, int stage) {
  check(p.microbatches % p.stages == 0, Exit::spec,
        "[pipeline] interleaved: {} micro-batches over {} stages, wanted a multiple of the stages", p.microbatches,
        p.stages);
  const int n = p.microbatches * p.chunks, group = p.stages * p.chunks;
  const auto chunk = [&](int k) { return k / p.stages % p.chunks; };
  const auto microbatch = [&](int k) { return k / group * p.stages + k % p.stages; };
  const int warmup = std::min(n, (p.stages - stage - 1) * 2 + (p.chunks - 1) * p.stages);
  std::vector<Action> a;
  int f = 0, b = 0;
  const auto forward = [&] {
    a.push_back(forward_of(microbatch(f), chunk(f)));
    ++f;
  };
  while (f < warmup) forward();
  while (b < n) {
    if (f < n) forward();
    push_backward(a, microbatch(b), p.chunks - 1 - chunk(b));
    ++b;
  }
  return a;
}

}  // namespace trainer
