// Embedding: bytes moved are the ideal, the rows of the tables read and out written once.
// A token or position out of range reads nothing: its row of out is NaN, and so is the loss (the host cannot look
// before it launches).
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"

namespace trainer::cuda {
namespace {

template <int V, class T>
struct EmbeddingRows {
  static constexpr int kInFlight = 2;
  struct Held {
    Pack<T, V> token, position;
    bool valid;
  };
  Rows<T> out;
  Rows<const T> table, position_table;
  const int32_t *tokens, *positions;
  int64_t seq_len, most_positions;
  VocabularySlice slice;

  __device__ Held load(const At& at) const {
    Held held{{}, {}, true};
    const int64_t token = tokens[at.row], row = token - slice.first;
    held.valid = token >= 0 && token < slice.vocab;
    if (row >= 0 && row < slice.count) held.token = cuda::load<V>(table[row] + at.column, at.count);
    if (!position_table) return held;
    const int64_t position = positions ? positions[at.row] : at.row % seq_len;
    if (position < 0 || position >= most_positions) held.valid = false;
    else held.position = cuda::load<V>(position_table[position] + at.column, at.count);
    return held;
  }
  __device__ void store(const At& at, const Held& held) const {
    Floats<V> x = floats(held.token);
    const Floats<V> position = floats(held.position);
#pragma unroll
    for (int i = 0; i < V; ++i) x.at[i] = held.valid ? x.at[i] + position.at[i] : __int_as_float(0x7fffffff);
    store_floats(out.at(at), x, at.count);
  }
};

template <int V, class T>
void embedding(Stream& stream, const Extent& extent, const Embedding& op) {
  map<V>(stream, extent,
         EmbeddingRows<V, T>{Rows<T>(op.out), Rows<const T>(op.table), Rows<const T>(op.position_table),
                             data_as<const int32_t>(op.tokens), data_as<const int32_t>(op.positions), op.seq_len,
                             op.position_table ? op.position_table.rows() : 0, op.slice});
}

}  // namespace

void run(Stream& stream, const Embedding& op) {
  const Extent extent(op.out.rows(), op.out.row_elements());
  with_dtype(op.kName, {&op.out, &op.table, &op.position_table}, [&]<class T>(T) {
    constexpr int V = kWide<T>;
    const bool wide =
        extent.columns % V == 0 && aligned(V, {2, extent.columns}, {&op.out, &op.table, &op.position_table});
    if (wide) embedding<V, T>(stream, extent, op);
    else embedding<1, T>(stream, extent, op);
  });
}

}  // namespace trainer::cuda
