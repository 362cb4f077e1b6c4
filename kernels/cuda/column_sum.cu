// ColumnSum: x is read once. Blocks of rows are summed apart, so that the whole chip reads, and their sums once more,
// in order: of 8192 rows that is 64 to 128 rows of f32 beside the 8192. The order of additions depends on the shape
// alone.
#include <algorithm>

#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"

namespace trainer::cuda {
namespace {

constexpr int kRowLanes = 8;          // rows that a block of threads reads side by side
constexpr int64_t kRowsOfBlock = 64;  // at least
constexpr int64_t kGrid = 1024;       // blocks of threads, about

int64_t row_blocks(const ColumnSum& op) {
  const int64_t tiles = ceil_div(op.x.row_elements(), kWarp * 16 / int64_t(size_of(op.x.dtype)));
  return std::clamp<int64_t>(op.x.rows() / kRowsOfBlock, 1, std::max<int64_t>(1, kGrid / std::max<int64_t>(1, tiles)));
}

// Row blockIdx.y of `sums` (+)= rows [rows * y / gridDim.y, rows * (y + 1) / gridDim.y) of x. A warp reads V columns a
// lane.
template <int V, class T, class To>
__global__ void __launch_bounds__(kWarp* kRowLanes)
    column_sum_kernel(To* sums, Rows<const T> x, int64_t rows, int64_t columns, bool accumulate) {
  constexpr int kAhead = 4;
  CU_SHARED(float, lanes, [kRowLanes][kWarp * V]);
  const int64_t first = int64_t(blockIdx.x) * kWarp * V, column = first + threadIdx.x * V;
  const int count = columns - column >= V ? V : columns > column ? int(columns - column) : 0;
  const int64_t end = rows * (blockIdx.y + 1) / gridDim.y;
  int64_t row = rows * blockIdx.y / gridDim.y + threadIdx.y;
  Floats<V> sum{};
  const auto add = [&](const Pack<T, V>& pack) {
    const Floats<V> value = floats(pack);
#pragma unroll
    for (int i = 0; i < V; ++i) sum.at[i] += value.at[i];
  };
  if (count) {
    for (; row + (kAhead - 1) * kRowLanes < end; row += kAhead * kRowLanes) {
      Pack<T, V> ahead[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) ahead[i] = load<V>(x[row + i * kRowLanes] + column, count);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) add(ahead[i]);
    }
    for (; row < end; row += kRowLanes) add(load<V>(x[row] + column, count));
  }
#pragma unroll
  for (int i = 0; i < V; ++i) lanes[threadIdx.y][threadIdx.x * V + i] = sum.at[i];
  __syncthreads();
  To* to = sums + blockIdx.y * columns;
  for (int c = int(threadIdx.y * kWarp + threadIdx.x); c < kWarp * V && first + c < columns; c += kWarp * kRowLanes) {
    float total = accumulate ? load_floats<1>(to + first + c).at[0] : 0;
#pragma unroll
    for (int lane = 0; lane < kRowLanes; ++lane) total += lanes[lane][c];
    store_floats(to + first + c, Floats<1>{{total}});
  }
}

template <class T, class To>
void column_sum(Stream& stream, To* sums, const Tensor& x, int64_t blocks, bool accumulate) {
  const int64_t columns = x.row_elements();
  const auto launch = [&](auto kernel, int V) {
    CU_LAUNCH(kernel, dim3(unsigned(ceil_div(columns, kWarp * V)), unsigned(blocks)), dim3(kWarp, kRowLanes), 0,
              stream_of(stream), sums, Rows<const T>(x), x.rows(), columns, accumulate);
  };
  if (columns == 0) return;
  if (aligned(kWide<T>, {x.rows(), columns}, {&x})) launch(column_sum_kernel<kWide<T>, T, To>, kWide<T>);
  else launch(column_sum_kernel<1, T, To>, 1);
}

}  // namespace

size_t scratch_bytes(const ColumnSum& op) {
  const int64_t blocks = row_blocks(op);
  return blocks == 1 ? 0 : size_t(blocks * op.x.row_elements()) * sizeof(float);
}

void run(Stream& stream, const ColumnSum& op) {
  const int64_t blocks = row_blocks(op), columns = op.x.row_elements();
  with_dtype(op.kName, op.sum.dtype, [&]<class To>(To) {
    with_dtype(op.kName, op.x.dtype, [&]<class T>(T) {
      To* sum = data_as<To>(op.sum);
      if (blocks == 1) return column_sum<T>(stream, sum, op.x, 1, op.accumulate);
      auto* partials = scratch_of<float>(stream);
      column_sum<T>(stream, partials, op.x, blocks, false);
      const Tensor sums = make_tensor(reinterpret_cast<std::byte*>(partials), DType::f32, {blocks, columns});
      column_sum<float>(stream, sum, sums, 1, op.accumulate);
    });
  });
}

}  // namespace trainer::cuda
