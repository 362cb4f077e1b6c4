#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>

#include <cmath>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grid.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector-inl.h"

#ifndef TRAINER_CPU_ADAMW_STEP
#define TRAINER_CPU_ADAMW_STEP
namespace trainer::cpu {

struct AdamWStep {
  float factor;  // of the gradient
  float beta1, beta2, epsilon;
  float rate;     // lr / bias1
  float unbias2;  // 1 / bias2
  float decay;    // 1 - lr * weight_decay, of what decays
};
template <class G>
struct AdamWSpan {
  float *master, *m, *v;
  const G* g;
  bf16* weight;  // or nullptr
  size_t count, decayed;
};

}  // namespace trainer::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {

using DHalf = hn::Half<DF>;
using DD = hn::RepartitionToWide<DF>;
using VD = hn::Vec<DD>;

// f64, so that no finite gradient overflows.
template <class G>
double squared_norm(const G* g, size_t n) {
  constexpr DD d;
  VD s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto add = [&](VD& low_sum, VD& high_sum, V v) HWY_ATTR {
    const VD low = hn::PromoteTo(d, hn::LowerHalf(DHalf(), v)), high = hn::PromoteTo(d, hn::UpperHalf(DHalf(), v));
    low_sum = hn::MulAdd(low, low, low_sum);
    high_sum = hn::MulAdd(high, high, high_sum);
  };
  size_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
    add(s0, s1, load(g + i));
    add(s2, s3, load(g + i + kWidth));
  }
  for_vectors(n - i, [&](size_t j, auto part) HWY_ATTR { add(s0, s1, load(g + i + j, part)); });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// Where `kStream`, whole vectors of weights go past the caches: they are not read before the next forward pass.
template <bool kStream, class G>
void adamw(const AdamWStep& a, const AdamWSpan<G>& span) {
  const V beta1 = set(a.beta1), beta2 = set(a.beta2), rest1 = set(1 - a.beta1), rest2 = set(1 - a.beta2);
  const V factor = set(a.factor), rate = set(a.rate), unbias2 = set(a.unbias2), decay = set(a.decay),
          epsilon = set(a.epsilon);
  for_vectors(span.count, [&](size_t i, auto part) HWY_ATTR {
    const V g = hn::Mul(load(span.g + i, part), factor);
    const V m = hn::MulAdd(beta1, load(span.m + i, part), hn::Mul(rest1, g));
    const V v = hn::MulAdd(beta2, load(span.v + i, part), hn::Mul(rest2, hn::Mul(g, g)));
    const V step = hn::Div(hn::Mul(rate, m), hn::Add(hn::Sqrt(hn::Mul(v, unbias2)), epsilon));
    const auto decays = hn::FirstN(DF(), i < span.decayed ? span.decayed - i : 0);
    const V w = hn::MulSub(hn::IfThenElse(decays, decay, set(1)), load(span.master + i, part), step);
    store(m, span.m + i, part);
    store(v, span.v + i, part);
    store(w, span.master + i, part);
    if (!span.weight) return;
    if constexpr (kStream && std::is_same_v<decltype(part), Whole>)
      hn::Stream(hn::BitCast(hn::Rebind<uint16_t, DF>(), to_bf16s(w)), hn::Rebind<uint16_t, DF>(),
                 reinterpret_cast<uint16_t*>(span.weight + i));
    else store(w, span.weight + i, part);
  });
  if (kStream) hwy::FlushStream();
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {
namespace {

int64_t norm_pieces(int64_t elements) { return std::clamp<int64_t>(elements / kTaskElements, 1, 256); }

// Streaming stores pay where the weights would not stay in a cache anyway, and need whole vectors.
bool streams(const AdamW& op) {
  constexpr int64_t kFrom = int64_t{1} << 20;
  return op.weight && op.weight.elements() >= kFrom && reinterpret_cast<uintptr_t>(op.weight.data) % 64 == 0;
}

}  // namespace

size_t scratch_bytes(const SquaredNorm& op) { return size_t(norm_pieces(op.g.elements())) * sizeof(double); }

void run(Stream& stream, const SquaredNorm& op) {
  const int64_t n = op.g.elements(), pieces = norm_pieces(n);
  auto* sums = reinterpret_cast<double*>(stream.scratch().data());
  with_dtype(op.kName, op.g.dtype, [&]<class G>(G) {
    const auto kernel = TRAINER_VECTOR(squared_norm<G>);
    for_blocks(pool_of(stream), pieces, n, 1, [&](int64_t piece, int64_t begin, int64_t end) {
      sums[piece] = kernel(data_as<const G>(op.g) + begin, size_t(end - begin));
    });
  });
  double sum = 0;
  for (int64_t p = 0; p < pieces; ++p) sum += sums[p];
  Outcome& outcome = *data_as<Outcome>(op.outcome);
  outcome.norm2 += sum;
  if (!std::isfinite(sum)) outcome.nonfinite += 1;
}

void run(Stream& stream, const AdamW& op) {
  const Control& control = *data_as<const Control>(op.control);
  if (control.skip) return;
  with_dtype(op.kName, op.g.dtype, [&]<class G>(G) {
    const auto kernel = streams(op) ? TRAINER_VECTOR(adamw<true, G>) : TRAINER_VECTOR(adamw<false, G>);
    const AdamWStep step{control.factor,
                         op.beta1,
                         op.beta2,
                         op.epsilon,
                         control.lr / control.bias1,
                         1 / control.bias2,
                         1 - control.lr * op.weight_decay};
    const float* all = data_as<const float>(op.master);
    for_spans<5>(stream, {op.master, op.m, op.v, op.g, op.weight}, [&](auto s) {
      const int64_t decayed = op.decayed - (s.template as<float>(0) - all);
      kernel(step, AdamWSpan<G>{s.template as<float>(0), s.template as<float>(1), s.template as<float>(2),
                                s.template as<const G>(3), s.template as<bf16>(4), s.count,
                                size_t(std::clamp<int64_t>(decayed, 0, int64_t(s.count)))});
    });
  });
}

void run(Stream& stream, const SetAside& op) {
  if (data_as<const Control>(op.control)->skip) return;
  run(stream, Copy{op.to, op.from});
}

}  // namespace trainer::cpu
#endif  // HWY_ONCE
