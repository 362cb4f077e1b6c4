#include "tests/cuemu/wgmma.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tests/cuemu/block.h"
#include "tests/cuemu/tensor_map.h"

namespace cuemu {
namespace {

constexpr int kLanes = 32, kK = 16, kRows = 16;
constexpr unsigned kWholeWarp = 0xffffffffu;

// Strides between 8 rows of K-major tiles, or between 8 k of MN-major ones (stride), and between 64 columns of the
// latter (leading); all in bytes.
struct Descriptor {
  uint32_t address, leading, stride;
  explicit Descriptor(uint64_t bits) {
    const auto field = [bits](int at) { return uint32_t(bits >> at & 0x3fff) << 4; };
    address = field(0);
    leading = field(16);
    stride = field(32);
  }
  const char* element(int mn, int k, bool transpose) const {
    const uint32_t offset = transpose ? uint32_t(mn / 64) * leading + uint32_t(mn % 64) * 2 + uint32_t(k / 8) * stride +
                                            uint32_t(k % 8) * 128
                                      : uint32_t(mn / 8) * stride + uint32_t(mn % 8) * 128 + uint32_t(k) * 2;
    const char* p = block->shared().at(uint32_t(swizzle(address + offset, kSwizzle128)));
    if (!block->shared().contains(p, 2)) fail("space", {}, "wgmma reads outside shared memory");
    return p;
  }
  float value(int mn, int k, bool transpose) const {
    uint16_t bits = 0;
    std::memcpy(&bits, element(mn, k, transpose), sizeof bits);
    return std::bit_cast<float>(uint32_t(bits) << 16);
  }
};
bool has_swizzle_128(uint64_t bits) { return bits >> 62 == 1; }

// The order that the thread sanitizer sees: this lane's share of the warp's reads.
void announce_reads(const WgmmaOperands& o, int first_row, unsigned lane) {
  if (!kThreadSanitizer) return;
  for (int k = 0; k < kK; ++k) {
    if (!o.a_registers && lane < kRows)
      tsan_read(Descriptor(o.a_descriptor).element(first_row + int(lane), k, o.transpose_a), 2);
    for (int n = int(lane); n < o.n; n += kLanes) tsan_read(Descriptor(o.b_descriptor).element(n, k, o.transpose_b), 2);
  }
}

struct Issue {
  const WgmmaOperands* operands;
  int first_row;
};
WarpWgmmas& of_warp() { return block->wgmmas(current->warp->index); }

}  // namespace

void WarpWgmmas::clear() {
  accumulators_.clear();
  products_.clear();
  fenced = false;
  groups = 0;
}

size_t WarpWgmmas::accumulator_of(float* const* d, int n) {
  for (size_t i = 0; i < accumulators_.size(); ++i)
    if (accumulators_[i].d[0] == d[0] && accumulators_[i].products > 0) return i;
  Accumulator fresh{{}, std::vector<float>(size_t(kLanes * n / 2)), 0};
  for (int lane = 0; lane < kLanes; ++lane) {
    fresh.d[lane] = d[lane];
    std::copy(d[lane], d[lane] + n / 2, fresh.values.begin() + lane * n / 2);
    std::fill(d[lane], d[lane] + n / 2, std::nanf(""));
  }
  accumulators_.push_back(std::move(fresh));
  return accumulators_.size() - 1;
}

void WarpWgmmas::issue(float* const* d, const WgmmaOperands* const* of_lane, int first_row) {
  Product p{*of_lane[0], {}, first_row, groups, accumulator_of(d, of_lane[0]->n), false};
  for (int lane = 0; lane < kLanes; ++lane) p.a_registers[lane] = of_lane[lane]->a_registers;
  ++accumulators_[p.accumulator].products;
  if (block->products_read_early()) multiply(p);
  products_.push_back(p);
}

void WarpWgmmas::multiply(Product& p) {
  if (p.done) return;
  p.done = true;
  const WgmmaOperands& o = p.operands;
  float a[kRows][kK];
  for (int row = 0; row < kRows; ++row)
    for (int k = 0; k < kK; ++k) {
      if (o.a_registers) {
        const uint32_t pair = p.a_registers[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
        a[row][k] = std::bit_cast<float>(k % 2 ? pair & 0xffff0000u : pair << 16);
      } else {
        a[row][k] = Descriptor(o.a_descriptor).value(p.first_row + row, k, o.transpose_a);
      }
    }
  Accumulator& sums = accumulators_[p.accumulator];
  for (int n = 0; n < o.n; ++n) {
    float b[kK];
    for (int k = 0; k < kK; ++k) b[k] = Descriptor(o.b_descriptor).value(n, k, o.transpose_b);
    for (int row = 0; row < kRows; ++row) {
      const int lane = row % 8 * 4 + n % 8 / 2, at = n / 8 * 4 + row / 8 * 2 + n % 2;
      float& sum = sums.values[size_t(lane * o.n / 2 + at)];
      if (!o.accumulate) sum = 0;
      for (int k = 0; k < kK; ++k) sum += a[row][k] * b[k];
    }
  }
}

void WarpWgmmas::deliver(const Product& p) {
  Accumulator& sums = accumulators_[p.accumulator];
  if (--sums.products > 0) return;
  const int n = p.operands.n / 2;
  for (int lane = 0; lane < kLanes; ++lane) std::copy_n(sums.values.begin() + lane * n, n, sums.d[lane]);
}

void WarpWgmmas::wait(unsigned groups_in_flight) {
  const int first_in_flight = int(groups) - int(groups_in_flight);
  auto product = products_.begin();
  for (; product != products_.end() && int(product->group) < first_in_flight; ++product) {
    multiply(*product);
    deliver(*product);
  }
  products_.erase(products_.begin(), product);
  if (products_.empty()) accumulators_.clear();
}

void wgmma(float* d, const WgmmaOperands& operands, const Location& where) {
  const unsigned warp = current->warp->index;
  if ((!operands.a_registers && !has_swizzle_128(operands.a_descriptor)) || !has_swizzle_128(operands.b_descriptor))
    fail("wgmma", where, "only descriptors with the 128-byte swizzle are emulated");
  if (!block->is_whole_warp_group(warp / 4)) fail("wgmma", where, "the warp group has fewer than four warps");
  if (!of_warp().fenced) fail("wgmma", where, "no wgmma.fence before the first wgmma of a batch");
  if (current->lane == 0) ++block->stats().wgmma;
  const int first_row = int(warp % 4) * kRows;
  announce_reads(operands, first_row, current->lane);
  const auto complete = [](Collective& c) {
    const WgmmaOperands* of_lane[kLanes];
    float* sums[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      of_lane[lane] = static_cast<const WgmmaOperands*>(c.in[lane]);
      sums[lane] = static_cast<float*>(c.out[lane]);
    }
    of_warp().issue(sums, of_lane, int(current->warp->index % 4) * kRows);
  };
  warp_collective(Op::wgmma, kWholeWarp, &operands, d, complete, where);
}

void wgmma_fence() { of_warp().fenced = true; }
void wgmma_commit() {
  if (current->lane == 0) ++of_warp().groups;
}
void wgmma_wait(unsigned groups_in_flight, const Location& where) {
  if (current->lane == 0) block->wait_long();
  const auto complete = [](Collective& c) {
    of_warp().wait(*static_cast<const unsigned*>(c.in[0]));
    of_warp().fenced = false;
  };
  warp_collective(Op::wgmma, kWholeWarp, &groups_in_flight, nullptr, complete, where);
}

uint32_t shared_address(const void* p) { return block->shared().offset_of(p); }

}  // namespace cuemu
