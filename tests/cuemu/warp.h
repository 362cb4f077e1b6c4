// Collectives of a warp: each lane hands in its operands and sleeps; the last one computes for all.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/cuemu/fail.h"

namespace cuemu {

struct Thread;

enum class Op : uint8_t { none, shfl, ballot, syncwarp, mma, ldmatrix, stmatrix, wgmma };

struct Collective {
  unsigned mask = 0, arrived = 0;
  Op op = Op::none;
  Location where;
  const void* in[32];  // of each lane, on its stack
  void* out[32];
};

struct Warp {
  static constexpr int kMasks = 8;
  unsigned index = 0;
  unsigned alive = 0;  // the lanes that exist and have not exited
  Thread* lanes[32]{};
  Collective collectives[kMasks];  // one per set of lanes that is under way

  void start(unsigned number) {
    index = number;
    alive = 0;
    for (Collective& c : collectives) c.arrived = 0;
  }
};

using Complete = void (*)(Collective&);
// Returns when all lanes of `mask` have come to this place and `complete` has written their outputs.
void warp_collective(Op, unsigned mask, const void* in, void* out, Complete complete, const Location&);
// A lane exits: fails where others wait for it.
void check_exit(const Warp&, unsigned lane);

enum class Shuffle : uint8_t { index, up, down, exclusive_or };
struct ShuffleInput {
  uint64_t bits;
  int lane;
  int width;
  Shuffle kind;
};
uint64_t shuffle_bits(unsigned mask, const ShuffleInput&, const Location&);

template <class T>
T shuffle(unsigned mask, T value, Shuffle kind, int lane, int width, const Location& where) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  ShuffleInput in{0, lane, width, kind};
  std::memcpy(&in.bits, &value, sizeof value);
  const uint64_t bits = shuffle_bits(mask, in, where);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

unsigned ballot(unsigned mask, int predicate, const Location&);
unsigned active_mask();

}  // namespace cuemu
