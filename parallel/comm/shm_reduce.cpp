#include "parallel/comm/shm_reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "parallel/comm/shm_reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/base/error.h"
#include "core/tensor/bf16.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using V = hn::Vec<DF>;
using U = hn::Vec<DU>;
constexpr DF df{};
constexpr DU du{};
constexpr size_t kWidth = hn::MaxLanes(DF());

template <bool kMax>
HWY_INLINE V fold(V sum, V x) {
  if constexpr (kMax) return hn::IfThenElse(hn::Or(hn::Lt(sum, x), hn::IsNaN(x)), x, sum);
  else return hn::Add(sum, x);
}

// The fp32 sums of kStep neighbouring elements of type T; between two passes they lie in a buffer as they are.
template <class T>
struct Sums;

template <>
struct Sums<float> {
  static constexpr size_t kStep = kWidth;
  V v;
  HWY_INLINE void load(const float* p) { v = hn::LoadU(df, p); }
  HWY_INLINE void store(float* p) const { hn::StoreU(v, df, p); }
  template <bool kMax>
  HWY_INLINE void add(const float* p) {
    v = fold<kMax>(v, hn::LoadU(df, p));
  }
};

// Two bf16 share a 32-bit lane: the odd one is its upper half, the even one is shifted there. No lane is crossed.
template <>
struct Sums<bf16> {
  static constexpr size_t kStep = 2 * kWidth;
  V even, odd;
  HWY_INLINE static U lanes(const bf16* p) { return hn::LoadU(du, reinterpret_cast<const uint32_t*>(p)); }
  HWY_INLINE static V even_of(U u) { return hn::BitCast(df, hn::ShiftLeft<16>(u)); }
  HWY_INLINE static V odd_of(U u) { return hn::BitCast(df, hn::And(u, hn::Set(du, 0xffff0000))); }
  // To the nearest, ties to even, in the upper half. A NaN here comes from a bf16 or is the default one, so its lower
  // half is zero and no carry can make a number of it.
  HWY_INLINE static U rounded(V v) {
    const U bits = hn::BitCast(du, v);
    const U odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
  }
  HWY_INLINE void load(const float* p) {
    even = hn::LoadU(df, p);
    odd = hn::LoadU(df, p + kWidth);
  }
  HWY_INLINE void load(const bf16* p) {
    const U u = lanes(p);
    even = even_of(u);
    odd = odd_of(u);
  }
  HWY_INLINE void store(float* p) const {
    hn::StoreU(even, df, p);
    hn::StoreU(odd, df, p + kWidth);
  }
  HWY_INLINE void store(bf16* p) const {
    const U upper = hn::And(rounded(odd), hn::Set(du, 0xffff0000)), lower = hn::ShiftRight<16>(rounded(even));
    hn::StoreU(hn::Or(upper, lower), du, reinterpret_cast<uint32_t*>(p));
  }
  template <bool kMax>
  HWY_INLINE void add(const bf16* p) {
    const U u = lanes(p);
    even = fold<kMax>(even, even_of(u));
    odd = fold<kMax>(odd, odd_of(u));
  }
};

// out = first + more[0] + more[1] + ...; `first` and `out` are of T, or sums.
template <bool kMax, class First, class T, class Out>
void fold_block(const First* first, const T* const* more, size_t count, Out* out, size_t n) {
  constexpr size_t kStep = Sums<T>::kStep;
  size_t i = 0;
  for (; i + 2 * kStep <= n; i += 2 * kStep) {
    Sums<T> a, b;
    a.load(first + i);
    b.load(first + i + kStep);
    for (size_t r = 0; r < count; ++r) {
      a.template add<kMax>(more[r] + i);
      b.template add<kMax>(more[r] + i + kStep);
    }
    a.store(out + i);
    b.store(out + i + kStep);
  }
  for (; i < n; i += kStep) {
    const size_t lanes = std::min(kStep, n - i);
    HWY_ALIGN First start[kStep] = {};
    HWY_ALIGN T next[kStep] = {};
    HWY_ALIGN Out end[kStep];
    std::copy_n(first + i, std::is_same_v<First, T> ? lanes : kStep, start);
    Sums<T> a;
    a.load(start);
    for (size_t r = 0; r < count; ++r) {
      std::copy_n(more[r] + i, lanes, next);
      a.template add<kMax>(next);
    }
    a.store(end);
    std::copy_n(end, std::is_same_v<Out, T> ? lanes : kStep, out + i);
  }
}

// More sources than the cache has ways would evict each other (arenas lie alike), so they are taken a few at a time.
constexpr size_t kBlock = 2048, kSources = 6;

template <bool kMax, class T>
void fold_all(const T* const* from, size_t count, T* out, size_t n) {
  if (count <= kSources) return fold_block<kMax>(from[0], from + 1, count - 1, out, n);
  HWY_ALIGN float sums[kBlock + 2 * kWidth];  // the last step is whole
  fold_block<kMax>(from[0], from + 1, kSources - 1, sums, n);
  size_t done = kSources;
  for (; done + kSources < count; done += kSources) fold_block<kMax>(sums, from + done, kSources, sums, n);
  fold_block<kMax>(sums, from + done, count - done, out, n);
}

void sum_f32(const float* const* from, size_t count, float* out, size_t n) { fold_all<false>(from, count, out, n); }
void max_f32(const float* const* from, size_t count, float* out, size_t n) { fold_all<true>(from, count, out, n); }
void sum_bf16(const bf16* const* from, size_t count, bf16* out, size_t n) { fold_all<false>(from, count, out, n); }
void max_bf16(const bf16* const* from, size_t count, bf16* out, size_t n) { fold_all<true>(from, count, out, n); }

}  // namespace trainer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer {
namespace {

HWY_EXPORT(sum_f32);
HWY_EXPORT(max_f32);
HWY_EXPORT(sum_bf16);
HWY_EXPORT(max_bf16);

constexpr size_t kBlock = 2048;       // elements: sources, sum and results stay in the first-level cache
constexpr size_t kMostSources = 256;  // of a block's pointers on the stack

// f64 and integers are few (losses, counts): plain loops.
template <class T, class Fold>
void fold_plain(const T* const* from, size_t count, T* out, size_t n, Fold fold) {
  for (size_t i = 0; i < n; ++i) {
    T x = from[0][i];
    for (size_t r = 1; r < count; ++r) x = fold(x, from[r][i]);
    out[i] = x;
  }
}
template <class T>
void sum_plain(const T* const* from, size_t count, T* out, size_t n) {
  fold_plain(from, count, out, n, [](T a, T b) {
    if constexpr (std::is_integral_v<T>) return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
    else return a + b;
  });
}
template <class T>
void max_plain(const T* const* from, size_t count, T* out, size_t n) {
  fold_plain(from, count, out, n, [](T a, T b) { return a < b || b != b ? b : a; });
}

template <class T>
using Block = void (*)(const T* const* from, size_t count, T* out, size_t n);

template <class T>
void reduce_blocks(Block<T> block, std::span<const std::byte* const> from, std::span<std::byte* const> to, size_t n) {
  const T* at[kMostSources];
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    for (size_t r = 0; r < from.size(); ++r) at[r] = reinterpret_cast<const T*>(from[r]) + i;
    T* out = reinterpret_cast<T*>(to[0]) + i;
    block(at, from.size(), out, m);
    for (std::byte* other : to.subspan(1)) std::memcpy(reinterpret_cast<T*>(other) + i, out, m * sizeof(T));
  }
}

}  // namespace

void check_reduces(const Reduction& r) {
  const bool known = r.dtype == DType::f32 || r.dtype == DType::bf16 || r.dtype == DType::f64 ||
                     r.dtype == DType::i32 || r.dtype == DType::i64;
  check(known, Exit::rank, "[comm] a reduction of {}: wanted f32, bf16, f64, i32 or i64", name_of(r.dtype));
}

void reduce(const Reduction& r, std::span<const std::byte* const> from, std::span<std::byte* const> to,
            int64_t elements) {
  check_reduces(r);
  check(from.size() <= kMostSources, Exit::rank, "[comm] a reduction over {} ranks, at most {}", from.size(),
        kMostSources);
  const bool max = r.op == Comm::Reduce::max;
  const size_t n = size_t(elements);
  switch (r.dtype) {
    case DType::f32:
      return reduce_blocks<float>(max ? &HWY_DYNAMIC_DISPATCH(max_f32) : &HWY_DYNAMIC_DISPATCH(sum_f32), from, to, n);
    case DType::bf16:
      return reduce_blocks<bf16>(max ? &HWY_DYNAMIC_DISPATCH(max_bf16) : &HWY_DYNAMIC_DISPATCH(sum_bf16), from, to, n);
    case DType::f64: return reduce_blocks<double>(max ? max_plain<double> : sum_plain<double>, from, to, n);
    case DType::i32: return reduce_blocks<int32_t>(max ? max_plain<int32_t> : sum_plain<int32_t>, from, to, n);
    default: return reduce_blocks<int64_t>(max ? max_plain<int64_t> : sum_plain<int64_t>, from, to, n);
  }
}

}  // namespace trainer
#endif  // HWY_ONCE
