#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grid.h"
#include "kernels/cpu/ids.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector-inl.h"

#ifndef TRAINER_CPU_ROPE_TABLE
#define TRAINER_CPU_ROPE_TABLE
namespace trainer::cpu {

// In the lane's scratch: the frequencies, then cosines and sines of each position. Rows are padded to whole vectors.
struct RopeTable {
  RopeTable(float* scratch, const Rope& op) : half((op.x.shape[2] / 2 + 15) / 16 * 16), inv_freq(scratch) {}
  float* cosines(int64_t position) const { return inv_freq + (1 + 2 * position) * half; }
  float* sines(int64_t position) const { return cosines(position) + half; }
  int64_t half;
  float* inv_freq;
};

}  // namespace trainer::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {

using DD = hn::ScalableTag<double>;
using DHalf = hn::Rebind<float, DD>;
using VD = hn::Vec<DD>;

// Sine and cosine in f64 to 2e-9, for angles below 2^30: the angle less the nearest multiple of pi / 2, which comes in
// two parts (Cody, Waite 1980), then Taylor polynomials; the low bits of the multiple tell the quadrant.
HWY_INLINE void sine_cosine(VD angle, VD& sine, VD& cosine) {
  constexpr DD d;
  constexpr hn::RebindToUnsigned<DD> du;
  const VD to_integer = hn::Set(d, 0x1.8p52);  // adding it rounds and leaves the integer in the low bits
  const VD shifted = hn::MulAdd(angle, hn::Set(d, 0.6366197723675814), to_integer), n = hn::Sub(shifted, to_integer);
  VD r = hn::NegMulAdd(n, hn::Set(d, 1.5707963267948966), angle);
  r = hn::NegMulAdd(n, hn::Set(d, 6.123233995736766e-17), r);
  const VD r2 = hn::Mul(r, r);
  VD s = hn::MulAdd(r2, hn::Set(d, 1.0 / 362880), hn::Set(d, -1.0 / 5040));
  s = hn::MulAdd(r2, s, hn::Set(d, 1.0 / 120));
  s = hn::MulAdd(r2, s, hn::Set(d, -1.0 / 6));
  s = hn::MulAdd(hn::Mul(r2, r), s, r);
  VD c = hn::MulAdd(r2, hn::Set(d, -1.0 / 3628800), hn::Set(d, 1.0 / 40320));
  c = hn::MulAdd(r2, c, hn::Set(d, -1.0 / 720));
  c = hn::MulAdd(r2, c, hn::Set(d, 1.0 / 24));
  c = hn::MulAdd(r2, c, hn::Set(d, -0.5));
  c = hn::MulAdd(r2, c, hn::Set(d, 1.0));
  const auto quadrant = hn::BitCast(du, shifted), one = hn::Set(du, 1);
  const auto odd = hn::MaskFromVec(hn::BitCast(d, hn::Sub(hn::Zero(du), hn::And(quadrant, one))));
  const auto sine_sign = hn::BitCast(d, hn::ShiftLeft<63>(hn::ShiftRight<1>(quadrant)));
  const auto cosine_sign = hn::BitCast(d, hn::ShiftLeft<63>(hn::ShiftRight<1>(hn::Add(quadrant, one))));
  sine = hn::Xor(hn::IfThenElse(odd, c, s), sine_sign);
  cosine = hn::Xor(hn::IfThenElse(odd, s, c), cosine_sign);
}

// Cosines and sines of positions [begin, end); `half` is a multiple of every vector.
void rope_table(const RopeTable& table, int64_t begin, int64_t end) {
  constexpr DD d;
  constexpr DHalf dh;
  for (int64_t p = begin; p < end; ++p) {
    float *cosines = table.cosines(p), *sines = table.sines(p);
    for (int64_t i = 0; i < table.half; i += int64_t(hn::MaxLanes(d))) {
      const auto angle = hn::Mul(hn::Set(dh, float(p)), hn::LoadU(dh, table.inv_freq + i));
      VD sine, cosine;
      sine_cosine(hn::PromoteTo(d, angle), sine, cosine);
      hn::StoreU(hn::DemoteTo(dh, cosine), dh, cosines + i);
      hn::StoreU(hn::DemoteTo(dh, sine), dh, sines + i);
    }
  }
}

// The heads x [groups, 2 n] of one row, in place.
template <class T>
void rotate(T* x, int64_t groups, size_t n, const float* cosines, const float* sines, float direction) {
  for (int64_t g = 0; g < groups; ++g, x += 2 * n)
    for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
      const V c = load(cosines + i), s = hn::Mul(load(sines + i), set(direction));
      const V a = load(x + i, part), b = load(x + n + i, part);
      store(hn::NegMulAdd(b, s, hn::Mul(a, c)), x + i, part);
      store(hn::MulAdd(a, s, hn::Mul(b, c)), x + n + i, part);
    });
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {

size_t scratch_bytes(const Rope& op) {
  const RopeTable table(nullptr, op);
  return size_t(table.half * (1 + 2 * op.seq_len)) * sizeof(float);
}

void run(Stream& stream, const Rope& op) {
  check_ids(op.kName, "position", op.positions, op.seq_len);
  Pool& pool = pool_of(stream);
  const int64_t head_dim = op.x.shape[2];
  RopeTable table(reinterpret_cast<float*>(stream.scratch().data()), op);
  std::fill_n(table.inv_freq, table.half, 0.0f);
  rope_frequencies(op.frequencies, head_dim, table.inv_freq);
  const auto fill = TRAINER_VECTOR(rope_table);
  for_rows(pool, std::min(op.seq_len, op.positions ? op.seq_len : op.x.rows()), 2 * table.half,
           [&](int64_t begin, int64_t end) { fill(table, begin, end); });
  with_dtype(op.kName, {&op.x}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(rotate<T>);
    const Positions positions(op.positions, op.seq_len);
    for_rows(pool, op.x.rows(), op.x.row_elements(), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n)
        kernel(data_as<T>(op.x) + n * op.x.stride(), op.x.shape[1], size_t(head_dim / 2), table.cosines(positions[n]),
               table.sines(positions[n]), op.inverse ? -1.0f : 1.0f);
    });
  });
}

}  // namespace trainer::cpu
#endif  // HWY_ONCE
