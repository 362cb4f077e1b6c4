// wgmma.mma_async of sm_90, bf16 to f32: a warp group multiplies tiles of shared memory while it goes on. Layouts after
// "Asynchronous Warpgroup Level Matrix Instructions" of the PTX ISA and cute::GMMA's canonical layouts, with the
// 128-byte swizzle only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/cuemu/fail.h"

namespace cuemu {

// d[64 x n] (+)= a[64 x 16] b[16 x n]. Descriptors as the instruction takes them; `transpose`: MN is the contiguous
// dimension, not K.
struct WgmmaOperands {
  int n = 0;
  const uint32_t* a_registers = nullptr;  // of this lane, which keeps them until the wait; otherwise a_descriptor
  uint64_t a_descriptor = 0, b_descriptor = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
};

// One warp's part: 16 rows. Its products read their tiles and registers when the warp waits, or at once: one of the two
// in every block. Accumulators hold NaN until the wait.
class WarpWgmmas {
 public:
  void clear();
  void issue(float* const* d, const WgmmaOperands* const* of_lane, int first_row);
  void wait(unsigned groups_in_flight);
  size_t pending() const { return products_.size(); }

  bool fenced = false;
  unsigned groups = 0;

 private:
  struct Accumulator {
    float* d[32];
    std::vector<float> values;  // by lane
    int products;               // pending
  };
  struct Product {
    WgmmaOperands operands;
    const uint32_t* a_registers[32];  // by lane
    int first_row;
    unsigned group;
    size_t accumulator;
    bool done;
  };
  size_t accumulator_of(float* const* d, int n);
  void multiply(Product&);
  void deliver(const Product&);

  std::vector<Accumulator> accumulators_;
  std::vector<Product> products_;
};

void wgmma(float* d, const WgmmaOperands&, const Location&);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(unsigned groups_in_flight, const Location&);
// The first operand of the instruction's descriptors: an address of shared memory, in its own space.
uint32_t shared_address(const void* p);

}  // namespace cuemu
