// Dropout: bytes moved are the ideal, every operand once (of bf16: 4 bytes an element, 6 with a base). About 17 integer
// instructions an element draw the mask, below what the chip has time for while the bytes move.
#include <cmath>

#include "core/ops/control.h"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/philox.cuh"

namespace trainer::cuda {
namespace {

// dropout_keeps() as integers: an element is kept where its 32 random bits are at least `threshold`.
template <int V, class T>
struct DropoutRows {
  static constexpr int kInFlight = 2;
  struct Held {
    Pack<T, V> x, base;
    int64_t row;  // its global index
  };
  Rows<T> y;
  Rows<const T> x, base;
  const int64_t* rows;
  const Control* control;
  int64_t columns;
  uint64_t key;
  uint32_t threshold;
  float scale;

  __device__ Held load(const At& at) const {
    return {cuda::load<V>(x.at(at), at.count), base ? cuda::load<V>(base.at(at), at.count) : Pack<T, V>{},
            load_one(rows + at.row)};
  }
  __device__ void store(const At& at, const Held& held) const {
    Floats<V> to = floats(held.x);
    const Floats<V> onto = floats(held.base);
    const uint64_t index = uint64_t(held.row * columns + at.column), seeded = key ^ load_one(&control->seed);
    const auto step = uint64_t(load_one(&control->step));
    if constexpr (V == 1) {
      const Philox4 draw = philox(seeded, index / 4, step);
      const uint32_t low = index & 1 ? draw.word[1] : draw.word[0], high = index & 1 ? draw.word[3] : draw.word[2];
      to.at[0] = kept(to.at[0], index & 2 ? high : low);
    } else {  // the index is a multiple of four: one draw each
#pragma unroll
      for (int i = 0; i < V; i += 4) {
        const Philox4 draw = philox(seeded, (index + i) / 4, step);
#pragma unroll
        for (int j = 0; j < 4; ++j) to.at[i + j] = kept(to.at[i + j], draw.word[j]);
      }
    }
    if (base)
#pragma unroll
      for (int i = 0; i < V; ++i) to.at[i] += onto.at[i];
    store_floats(y.at(at), to, at.count);
  }
  __device__ float kept(float value, uint32_t bits) const { return bits < threshold ? 0 : value * scale; }
};

template <int V, class T>
void dropout(Stream& stream, const Extent& extent, const Dropout& op) {
  // (bits + 0.5) / 2^32 >= rate, for an integer `bits`; every operation is exact.
  const auto threshold = uint32_t(std::ceil(double(op.rate) * 4294967296.0 - 0.5));
  map<V>(stream, extent,
         DropoutRows<V, T>{Rows<T>(op.y), Rows<const T>(op.x), Rows<const T>(op.base), data_as<const int64_t>(op.rows),
                           data_as<const Control>(op.control), extent.columns, op.key, threshold, 1 / (1 - op.rate)});
}

}  // namespace

void run(Stream& stream, const Dropout& op) {
  if (!(op.rate >= 0 && op.rate < 1)) refuse_rate(op.kName, op.rate);
  const Extent extent(op.x.rows(), op.x.row_elements());
  with_dtype(op.kName, {&op.y, &op.x, &op.base}, [&]<class T>(T) {
    if (extent.columns % 4 == 0 && aligned(kWide<T>, extent, {&op.y, &op.x, &op.base}))
      dropout<kWide<T>, T>(stream, extent, op);
    else dropout<1, T>(stream, extent, op);
  });
}

}  // namespace trainer::cuda
