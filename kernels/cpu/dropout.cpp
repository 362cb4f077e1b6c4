#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "core/base/error.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grid.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector-inl.h"

#ifndef TRAINER_CPU_DROPOUT_MASK
#define TRAINER_CPU_DROPOUT_MASK
namespace trainer::cpu {

// dropout_keeps() as integers: an element is kept where its 32 random bits are at least `threshold`.
struct DropoutMask {
  uint64_t key;
  uint64_t step;
  uint32_t threshold;
};

}  // namespace trainer::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {

using U = hn::Vec<DU>;

HWY_INLINE void multiply(U a, U b, U& high, U& low) {
  constexpr DU du;
  constexpr hn::RepartitionToWide<DU> dw;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(dw, a))), b);
  high = hn::OddEven(hn::BitCast(du, odd), hn::BitCast(du, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(odd)), hn::BitCast(du, even));
}

// The words of philox draws [first, first + kWidth), in order (core/base/philox.h).
HWY_INLINE void philox_words(const DropoutMask& mask, uint64_t first, uint32_t* words) {
  constexpr DU du;
  const U low = hn::Set(du, uint32_t(first)), one = hn::Set(du, 1);
  U c0 = hn::Add(low, hn::Iota(du, 0));
  U c1 = hn::Add(hn::Set(du, uint32_t(first >> 32)), hn::IfThenElseZero(hn::Lt(c0, low), one));
  U c2 = hn::Set(du, uint32_t(mask.step)), c3 = hn::Set(du, uint32_t(mask.step >> 32));
  U k0 = hn::Set(du, uint32_t(mask.key)), k1 = hn::Set(du, uint32_t(mask.key >> 32));
  for (int round = 0; round < 10; ++round) {
    U high0, low0, high2, low2;
    multiply(c0, hn::Set(du, 0xD2511F53), high0, low0);
    multiply(c2, hn::Set(du, 0xCD9E8D57), high2, low2);
    c0 = hn::Xor(hn::Xor(high2, c1), k0);
    c2 = hn::Xor(hn::Xor(high0, c3), k1);
    c1 = low2;
    c3 = low0;
    k0 = hn::Add(k0, hn::Set(du, 0x9E3779B9));
    k1 = hn::Add(k1, hn::Set(du, 0xBB67AE85));
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, du, words);
}

// y [n] = base (or nothing) + scale * x where the elements from global index `index` on are kept.
template <class T>
void dropout(T* y, const T* x, const T* base, const DropoutMask& mask, float scale, uint64_t index, size_t n) {
  constexpr size_t kElements = 4 * kWidth * 8;
  HWY_ALIGN uint32_t
      words[kElements + 4 * kWidth];  // one vector of draws more, as the first index may lie within a draw
  const auto threshold = hn::Set(DU(), mask.threshold);
  for (size_t done = 0; done < n;) {
    const size_t now = std::min(kElements, n - done), offset = (index + done) % 4;
    for (size_t w = 0; w < offset + now; w += 4 * kWidth) philox_words(mask, (index + done + w) / 4, words + w);
    for_vectors(now, [&](size_t i, auto part) HWY_ATTR {
      const auto dropped = hn::RebindMask(df, hn::Lt(hn::LoadU(DU(), words + offset + i), threshold));
      const V kept = hn::IfThenZeroElse(dropped, hn::Mul(load(x + done + i, part), set(scale)));
      store(base ? hn::Add(load(base + done + i, part), kept) : kept, y + done + i, part);
    });
    done += now;
  }
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {

void run(Stream& stream, const Dropout& op) {
  check(op.rate >= 0 && op.rate < 1, Exit::device, "{}: wanted a rate within [0, 1), found {}", op.kName, op.rate);
  const Control& control = *data_as<const Control>(op.control);
  // (bits + 0.5) / 2^32 >= rate, for an integer `bits`; every operation is exact.
  const auto threshold = uint32_t(std::ceil(double(op.rate) * 4294967296.0 - 0.5));
  const DropoutMask mask{op.key ^ control.seed, uint64_t(control.step), threshold};
  with_dtype(op.kName, {&op.y, &op.x, &op.base}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(dropout<T>);
    const Rows<T> y(op.y);
    const Rows<const T> x(op.x), base(op.base);
    const auto* rows = data_as<const int64_t>(op.rows);
    const int64_t columns = op.x.row_elements();
    for_rows(pool_of(stream), op.x.rows(), columns, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n)
        kernel(y[n], x[n], base ? base[n] : nullptr, mask, 1 / (1 - op.rate), uint64_t(rows[n] * columns),
               size_t(columns));
    });
  });
}

}  // namespace trainer::cpu
#endif  // HWY_ONCE
