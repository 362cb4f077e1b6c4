// Parameters as a rank holds them, and as the world knows them.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/device/comm.h"

namespace trainer {

using ParamId = uint32_t;  // several blocks may name one parameter: a tied head

struct Box {               // a part of a tensor: [lo, hi) in each dimension
  std::array<int64_t, 4> lo{}, hi{};
  bool operator==(const Box&) const = default;
};
inline Box whole_box(const Shape& s) {
  Box b;
  for (int i = 0; i < s.rank; ++i) b.hi[size_t(i)] = s[i];
  return b;
}

enum class Init : uint8_t { normal, ones, zeros };

// Checkpoints, initialisation and state hashes see pieces only. A fused QKV has three pieces of three tensors; a kv head that is
// replicated over tp is a piece that several ranks hold; padding is in no piece, and stays zero.
struct Param {
  std::string name;        // of the local buffer: unique in the model, the same on every rank
  Shape local;             // padding included
  struct Piece {
    std::string tensor;    // Hugging Face's name
    Shape logical;         // of that tensor, whole
    Box from, to;          // box `from` of it lies at box `to` here
  };
  std::vector<Piece> pieces;
  Init init = Init::normal;
  float init_std = 0;
  bool decays = true;
  // Elements [begin, end) of the flat local buffer that all ranks of `axis` hold alike: norms over tp, replicated kv heads
  // over kv. `partial`: each has a partial sum of their gradient. Rank 0 of the group counts their norm and saves them.
  struct Shared {
    int64_t begin = 0, end = 0;
    Axis axis = Axis::tp;
    bool partial = false;
  };
  std::vector<Shared> shared;
};

// The value of element `local_index` of the flat local buffer before the first step: Philox keyed by (seed, hash of the piece's
// tensor name), counted by the element's index in the logical tensor; padding is zero.
float initial_value(uint64_t seed, const Param&, int64_t local_index);
// The same for elements [begin, begin + out.size()): much faster than one by one.
void initial_values(uint64_t seed, const Param&, int64_t begin, std::span<float> out);

}  // namespace trainer
