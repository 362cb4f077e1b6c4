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
using DB = hn::Rebind<hwy::bfloat16_t, DF>;
using V = hn::Vec<DF>;
constexpr DF df{};
constexpr size_t kWidth = hn::MaxLanes(DF());

HWY_INLINE V load(const float* p) { return hn::LoadU(df, p); }
HWY_INLINE V load(const bf16* p) {
  return hn::PromoteTo(df, hn::LoadU(DB(), reinterpret_cast<const hwy::bfloat16_t*>(p)));
}
HWY_INLINE void store(V v, float* p) { hn::StoreU(v, df, p); }
// To the nearest, ties to even; NaN stays NaN.
HWY_INLINE void store(V v, bf16* p) {
  const DU du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(hn::Set(du, 0x7fff), odd));
  const auto quiet = hn::BitCast(df, hn::Or(bits, hn::Set(du, 0x400000)));
  const V out = hn::IfThenElse(hn::IsNaN(v), quiet, hn::BitCast(df, rounded));
  hn::StoreU(hn::DemoteTo(DB(), out), DB(), reinterpret_cast<hwy::bfloat16_t*>(p));
}

template <bool kMax>
HWY_INLINE V fold(V sum, V x) {
  if constexpr (kMax) return hn::IfThenElse(hn::Or(hn::Lt(sum, x), hn::IsNaN(x)), x, sum);
  else return hn::Add(sum, x);
}

// out = first + more[0] + more[1] + ...
template <bool kMax, class First, class T, class Out>
void fold_block(const First* first, const T* const* more, size_t count, Out* out, size_t n) {
  size_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) {
    V s0 = load(first + i), s1 = load(first + i + kWidth), s2 = load(first + i + 2 * kWidth),
      s3 = load(first + i + 3 * kWidth);
    for (size_t r = 0; r < count; ++r) {
      const T* x = more[r] + i;
      s0 = fold<kMax>(s0, load(x));
      s1 = fold<kMax>(s1, load(x + kWidth));
      s2 = fold<kMax>(s2, load(x + 2 * kWidth));
      s3 = fold<kMax>(s3, load(x + 3 * kWidth));
    }
    store(s0, out + i);
    store(s1, out + i + kWidth);
    store(s2, out + i + 2 * kWidth);
    store(s3, out + i + 3 * kWidth);
  }
  for (; i < n; i += kWidth) {
    const size_t lanes = std::min(kWidth, n - i);
    HWY_ALIGN First a[kWidth] = {};
    HWY_ALIGN T b[kWidth] = {};
    HWY_ALIGN Out c[kWidth];
    std::copy_n(first + i, lanes, a);
    V s = load(a);
    for (size_t r = 0; r < count; ++r) {
      std::copy_n(more[r] + i, lanes, b);
      s = fold<kMax>(s, load(b));
    }
    store(s, c);
    std::copy_n(c, lanes, out + i);
  }
}

// More sources than the cache has ways would evict each other (arenas lie alike), so they are taken a few at a time.
constexpr size_t kBlock = 2048, kSources = 6;

template <bool kMax, class T>
void fold_all(const T* const* from, size_t count, T* out, size_t n) {
  if (count <= kSources) return fold_block<kMax>(from[0], from + 1, count - 1, out, n);
  HWY_ALIGN float sums[kBlock];
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
