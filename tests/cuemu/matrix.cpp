#include "tests/cuemu/matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/cuemu/block.h"

namespace cuemu {
namespace {

constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr int kLanes = 32;

struct MmaInput {
  const uint32_t *a, *b;
  const float* c;
};
float low_bf16(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float high_bf16(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

struct Mma {
  static constexpr int M = 16, N = 8, K = 16;
  float a[M][K], b[K][N], c[M][N];

  void gather(const Collective& collective) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto& in = *static_cast<const MmaInput*>(collective.in[lane]);
      const int group = lane / 4, pair = lane % 4 * 2;
      for (int half = 0; half < 2; ++half) {  // registers 2 * half and 2 * half + 1 of a: columns 8 * half and on
        put_pair(&a[group][pair + 8 * half], in.a[2 * half]);
        put_pair(&a[group + 8][pair + 8 * half], in.a[2 * half + 1]);
        b[pair + 8 * half][group] = low_bf16(in.b[half]);
        b[pair + 8 * half + 1][group] = high_bf16(in.b[half]);
        c[group][pair + half] = in.c[half];
        c[group + 8][pair + half] = in.c[2 + half];
      }
    }
  }
  void multiply() {
    for (int m = 0; m < M; ++m)
      for (int k = 0; k < K; ++k)
        for (int n = 0; n < N; ++n) c[m][n] += a[m][k] * b[k][n];
  }
  void scatter(const Collective& collective) const {
    for (int lane = 0; lane < kLanes; ++lane) {
      float* out = static_cast<float*>(collective.out[lane]);
      const int group = lane / 4, pair = lane % 4 * 2;
      for (int half = 0; half < 2; ++half) {
        out[half] = c[group][pair + half];
        out[2 + half] = c[group + 8][pair + half];
      }
    }
  }

 private:
  static void put_pair(float* to, uint32_t pair) {
    to[0] = low_bf16(pair);
    to[1] = high_bf16(pair);
  }
};

struct LdmatrixInput {
  alignas(16) uint16_t row[8];
  uintptr_t address;
  int matrices;
  bool transpose;
};
const LdmatrixInput& input_of(const Collective& c, int lane) { return *static_cast<const LdmatrixInput*>(c.in[lane]); }

// Shared memory hands out 8 x 16 bytes at a time, one per group of banks: how many of a matrix's rows wait.
template <class Address>
uint64_t conflicts(Address address_of_row) {
  int rows_on[8] = {};
  for (int row = 0; row < 8; ++row) ++rows_on[address_of_row(row) / 16 % 8];
  return uint64_t(*std::max_element(rows_on, rows_on + 8) - 1);
}

void complete_ldmatrix(Collective& c) {
  const int matrices = input_of(c, 0).matrices;
  const bool transpose = input_of(c, 0).transpose;
  for (int matrix = 0; matrix < matrices; ++matrix) {
    block->stats().ldm_conflict_ways += conflicts([&](int row) { return input_of(c, matrix * 8 + row).address; });
    const auto element = [&](int i, int j) { return input_of(c, matrix * 8 + i).row[j]; };
    for (int lane = 0; lane < kLanes; ++lane) {
      const int i = lane / 4, j = lane % 4 * 2;
      const uint32_t low = transpose ? element(j, i) : element(i, j);
      const uint32_t high = transpose ? element(j + 1, i) : element(i, j + 1);
      static_cast<uint32_t*>(c.out[lane])[matrix] = low | high << 16;
    }
  }
}

struct StmatrixInput {
  uintptr_t address;
  const uint32_t* r;
};
// Each lane takes what belongs into its row.
void complete_stmatrix(Collective& c) {
  const auto in = [&c](int lane) { return *static_cast<const StmatrixInput*>(c.in[lane]); };
  for (int matrix = 0; matrix < 4; ++matrix) {
    block->stats().stm_conflict_ways += conflicts([&](int row) { return in(matrix * 8 + row).address; });
    for (int lane = 0; lane < kLanes; ++lane)
      static_cast<uint32_t*>(c.out[matrix * 8 + lane / 4])[lane % 4] = in(lane).r[matrix];
  }
}

}  // namespace

void mma_m16n8k16_bf16(float* d, const uint32_t* a, const uint32_t* b, const float* c, const Location& where) {
  MmaInput in{a, b, c};
  block->stats().mma += current->lane == 0;
  const auto complete = [](Collective& collective) {
    Mma mma;
    mma.gather(collective);
    mma.multiply();
    mma.scatter(collective);
  };
  warp_collective(Op::mma, kWholeWarp, &in, d, complete, where);
}

void ldmatrix(uint32_t* r, int matrices, const void* row, bool transpose, const Location& where) {
  LdmatrixInput in{{}, reinterpret_cast<uintptr_t>(row), matrices, transpose};
  const bool address_counts = int(current->lane) < 8 * matrices;
  if (address_counts) {
    if (in.address % 16) fail("align", where, "ldmatrix: the row %p is not aligned to 16 bytes", row);
    if (!block->shared().contains(row, 16)) fail("space", where, "ldmatrix: the row %p is outside shared memory", row);
    tsan_read(row, sizeof in.row);
    std::memcpy(in.row, row, sizeof in.row);  // this lane's own read, for the sanitizers
  }
  uint32_t out[4] = {};
  if (current->lane == 0) block->stats().ldm += uint64_t(matrices);
  warp_collective(Op::ldmatrix, kWholeWarp, &in, out, complete_ldmatrix, where);
  std::memcpy(r, out, sizeof *r * size_t(matrices));
}

void stmatrix_x4(void* row, const uint32_t* r, const Location& where) {
  StmatrixInput in{reinterpret_cast<uintptr_t>(row), r};
  uint32_t out[4] = {};
  if (in.address % 16) fail("align", where, "stmatrix: the row %p is not aligned to 16 bytes", row);
  if (!block->shared().contains(row, sizeof out))
    fail("space", where, "stmatrix: the row %p is outside shared memory", row);
  if (current->lane == 0) block->stats().stm += 4;
  warp_collective(Op::stmatrix, kWholeWarp, &in, out, complete_stmatrix, where);
  tsan_write(row, sizeof out);
  std::memcpy(row, out, sizeof out);  // this lane's own write, for the sanitizers
}

}  // namespace cuemu
