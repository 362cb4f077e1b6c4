// Packing moves data: the 128-bit instructions that every x86-64 has are enough, four packed elements at a time.
#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "kernels/cpu/matmul_kernel.h"

namespace trainer::cpu {
namespace {

// How four-byte elements are read: `across` four lanes of one depth where lanes are adjacent, `along` four depths of
// one lane where depths are.
struct Floats {
  using Stored = float;
  static constexpr int64_t kPair = 1;
  static __m128i across(const float* p, int64_t) { return along(p); }
  static __m128i along(const float* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static uint32_t one(const float* p, int64_t, bool) {
    uint32_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return bits;
  }
};
struct Widened {
  using Stored = uint16_t;
  static constexpr int64_t kPair = 1;
  static __m128i across(const uint16_t* p, int64_t) { return along(p); }
  static __m128i along(const uint16_t* p) {
    return _mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static uint32_t one(const uint16_t* p, int64_t, bool) { return uint32_t(*p) << 16; }
};
struct Pairs {
  using Stored = uint16_t;
  static constexpr int64_t kPair = 2;
  static __m128i across(const uint16_t* p, int64_t next) {
    return _mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)),
                              _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + next)));
  }
  static __m128i along(const uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static uint32_t one(const uint16_t* p, int64_t next, bool whole) {
    return *p | (whole ? uint32_t(p[next]) << 16 : 0);
  }
};

void put(uint32_t* to, __m128i x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), x); }

// Rows of four depths become rows of four lanes, `width` apart.
void put_transposed(uint32_t* to, int64_t width, __m128i r0, __m128i r1, __m128i r2, __m128i r3) {
  const __m128i a = _mm_unpacklo_epi32(r0, r1), b = _mm_unpacklo_epi32(r2, r3);
  const __m128i c = _mm_unpackhi_epi32(r0, r1), d = _mm_unpackhi_epi32(r2, r3);
  put(to, _mm_unpacklo_epi64(a, b));
  put(to + width, _mm_unpackhi_epi64(a, b));
  put(to + 2 * width, _mm_unpacklo_epi64(c, d));
  put(to + 3 * width, _mm_unpackhi_epi64(c, d));
}

template <class Element, int64_t kWidth>
class Packer {
 public:
  using Stored = typename Element::Stored;
  Packer(const Factor& f, const PanelPart& part, std::byte* to)
      : lane_step_(f.lanes_adjacent ? 1 : f.stride),
        k_step_(f.lanes_adjacent ? f.stride : 1),
        from_(reinterpret_cast<const Stored*>(f.data) + part.lane * lane_step_ + part.k * k_step_),
        part_(part),
        whole_(part.depth / Element::kPair),
        all_((part.depth + Element::kPair - 1) / Element::kPair),
        to_(reinterpret_cast<uint32_t*>(to)) {}

  void pack() const {
    const int64_t panels = part_.lanes / kWidth, rest = part_.lanes % kWidth;
    const int64_t fast = lane_step_ == 1 ? whole_ : whole_ / 4 * 4;
    if (lane_step_ == 1) pack_across(panels, fast);
    else
      for (int64_t p = 0; p < panels; ++p) pack_along(p, fast);
    for (int64_t p = 0; p < panels; ++p) pack_singly(p, kWidth, fast);
    if (rest) pack_singly(panels, rest, 0);
  }

 private:
  const Stored* lane(int64_t panel) const { return from_ + panel * kWidth * lane_step_; }
  uint32_t* element(int64_t panel, int64_t e) const { return to_ + (panel * all_ + e) * kWidth; }

  // Panel by panel within a row, because rows may be pages apart. The last four lanes of a panel may overlap those
  // before them.
  void pack_across(int64_t panels, int64_t elements) const {
    for (int64_t e = 0; e < elements; ++e) {
      const Stored* from = from_ + e * Element::kPair * k_step_;
      uint32_t* to = element(0, e);
      for (int64_t p = 0; p < panels; ++p, from += kWidth, to += all_ * kWidth)
#pragma GCC unroll 16
        for (int64_t l = 0; l < kWidth; l += 4) {
          const int64_t first = std::min(l, kWidth - 4);
          put(to + first, Element::across(from + first, k_step_));
        }
    }
  }
  void pack_along(int64_t panel, int64_t elements) const {
    for (int64_t e = 0; e < elements; e += 4)
      for (int64_t l = 0; l < kWidth; l += 4) {
        const int64_t first = std::min(l, kWidth - 4);
        const Stored* p = lane(panel) + first * lane_step_ + e * Element::kPair;
        put_transposed(element(panel, e) + first, kWidth, Element::along(p), Element::along(p + lane_step_),
                       Element::along(p + 2 * lane_step_), Element::along(p + 3 * lane_step_));
      }
  }
  void pack_singly(int64_t panel, int64_t lanes, int64_t begin) const {
    for (int64_t e = begin; e < all_; ++e)
      for (int64_t l = 0; l < kWidth; ++l)
        element(panel, e)[l] =
            l < lanes ? Element::one(lane(panel) + l * lane_step_ + e * Element::kPair * k_step_, k_step_, e < whole_)
                      : 0;
  }

  const int64_t lane_step_, k_step_;
  const Stored* const from_;
  const PanelPart part_;
  const int64_t whole_, all_;  // elements: those without a missing half, and with it
  uint32_t* const to_;
};

// The widths of all kernels' tiles: constants, so that what is one panel wide needs no loop.
template <class Element>
void pack(const Factor& f, const PanelPart& part, int64_t width, std::byte* to) {
  const auto with = [&]<int64_t kWidth>() { Packer<Element, kWidth>(f, part, to).pack(); };
  switch (width) {
    case 6: return with.template operator()<6>();
    case 12: return with.template operator()<12>();
    case 16: return with.template operator()<16>();
    case 32: return with.template operator()<32>();
    case 64: return with.template operator()<64>();
    default: fail(Exit::device, "matmul: wanted panels of 6, 12, 16, 32 or 64 lanes, found {}", width);
  }
}

}  // namespace

void pack_floats(const Factor& f, const PanelPart& part, int64_t width, std::byte* to) {
  if (f.dtype == DType::f32) pack<Floats>(f, part, width, to);
  else pack<Widened>(f, part, width, to);
}
void pack_pairs(const Factor& f, const PanelPart& part, int64_t width, std::byte* to) {
  pack<Pairs>(f, part, width, to);
}

}  // namespace trainer::cpu
