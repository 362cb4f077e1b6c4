// Vectors of f32 for the kernels, compiled once per instruction set by hwy/foreach_target.h: loads and stores of f32
// and bf16 at any alignment, tails, exp2, sums. See kernels/cpu/dispatch.h for how a kernel source is laid out.
#if defined(TRAINER_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINER_CPU_VECTOR_INL_H_
#undef TRAINER_CPU_VECTOR_INL_H_
#else
#define TRAINER_CPU_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "core/tensor/bf16.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DB = hn::Rebind<hwy::bfloat16_t, DF>;
using V = hn::Vec<DF>;
inline constexpr DF df{};
inline constexpr size_t kWidth = hn::MaxLanes(DF());

HWY_INLINE V set(float x) { return hn::Set(df, x); }
HWY_INLINE float sum(V v) { return hn::GetLane(hn::SumOfLanes(df, v)); }

HWY_INLINE V load(const float* p) { return hn::LoadU(df, p); }
HWY_INLINE V load(const bf16* p) {
  return hn::PromoteTo(df, hn::LoadU(DB(), reinterpret_cast<const hwy::bfloat16_t*>(p)));
}

// To the nearest bf16, ties to even, NaN stays NaN (Highway 1.0.3's own conversion truncates).
HWY_INLINE hn::Vec<DB> to_bf16s(V v) {
  const DU du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(hn::Set(du, 0x7fff), odd));
  const auto nan = hn::BitCast(du, hn::VecFromMask(df, hn::IsNaN(v)));  // all ones, which is a NaN as well
  return hn::DemoteTo(DB(), hn::BitCast(df, hn::Or(rounded, nan)));
}
HWY_INLINE void store(V v, float* p) { hn::StoreU(v, df, p); }
HWY_INLINE void store(V v, bf16* p) { hn::StoreU(to_bf16s(v), DB(), reinterpret_cast<hwy::bfloat16_t*>(p)); }

// How much of a vector exists: all of it, or the first lanes at the end of a row. What does not exist loads as zero.
struct Whole {};
struct Part {
  size_t lanes;
};
template <class T>
HWY_INLINE V load(const T* p, Whole) {
  return load(p);
}
template <class T>
HWY_INLINE V load(const T* p, Part part) {
  HWY_ALIGN T lanes[kWidth] = {};
  std::copy_n(p, part.lanes, lanes);
  return load(lanes);
}
template <class T>
HWY_INLINE void store(V v, T* p, Whole) {
  store(v, p);
}
template <class T>
HWY_INLINE void store(V v, T* p, Part part) {
  HWY_ALIGN T lanes[kWidth];
  store(v, lanes);
  std::copy_n(lanes, part.lanes, p);
}
HWY_INLINE V keep(V v, Whole) { return v; }
HWY_INLINE V keep(V v, Part part) { return hn::IfThenElseZero(hn::FirstN(df, part.lanes), v); }

// body(i, whole or part) for every vector of [0, n).
template <class Body>
HWY_INLINE void for_vectors(size_t n, Body body) {
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}
// The sum of a row: body(sum, i, whole or part) adds what vector i holds. Four chains hide the latency of additions.
template <class Body>
HWY_INLINE float sum_over(size_t n, Body body) {
  V s0 = hn::Zero(df), s1 = s0, s2 = s0, s3 = s0;
  size_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) {
    s0 = body(s0, i, Whole{});
    s1 = body(s1, i + kWidth, Whole{});
    s2 = body(s2, i + 2 * kWidth, Whole{});
    s3 = body(s3, i + 3 * kWidth, Whole{});
  }
  for (; i + kWidth <= n; i += kWidth) s0 = body(s0, i, Whole{});
  if (i < n) s1 = body(s1, i, Part{n - i});
  return sum(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// 2^x with a relative error of 1e-7, for x within [-126, 126] and saturated outside. What a NaN gives is unspecified.
HWY_INLINE V exp2(V x) {
  x = hn::Max(set(-126.0f), hn::Min(set(126.0f), x));
  const V to_integer = set(0x1.8p23f);  // adding it rounds and leaves the integer in the low bits
  const V shifted = hn::Add(x, to_integer), f = hn::Sub(x, hn::Sub(shifted, to_integer));
  V p = hn::MulAdd(set(0.0013390863f), f, set(0.0096760320f));
  p = hn::MulAdd(p, f, set(0.055503571f));
  p = hn::MulAdd(p, f, set(0.24022108f));
  p = hn::MulAdd(p, f, set(0.69314719f));
  p = hn::MulAdd(p, f, set(1.0f));
  return hn::BitCast(df, hn::Add(hn::BitCast(DI(), p), hn::ShiftLeft<23>(hn::BitCast(DI(), shifted))));
}
HWY_INLINE V reciprocal(V x) {  // the approximation and one Newton step: 2e-7
  const V r = hn::ApproximateReciprocal(x);
  return hn::Mul(r, hn::NegMulAdd(x, r, set(2.0f)));
}
// x * sigmoid(x) of a NaN is NaN by the first factor.
HWY_INLINE V sigmoid(V x) { return reciprocal(hn::Add(set(1.0f), exp2(hn::Mul(x, set(-1.44269504f))))); }
// And rest = 1 - sigmoid(x) to full precision, which a subtraction from 1 has not.
HWY_INLINE V sigmoid(V x, V& rest) {
  const V e = exp2(hn::Mul(x, set(-1.44269504f))), s = reciprocal(hn::Add(set(1.0f), e));
  rest = hn::Mul(e, s);
  return s;
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
