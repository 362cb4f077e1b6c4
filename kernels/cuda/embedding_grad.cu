// EmbeddingGrad: d_out is read once, and each row of a table that gets something is read and written once, whatever the
// number of its tokens. Which rows of d_out those are is found by a counting sort of the tokens:
//   count   slot[n] = how many of the same token came before, in any order
//   start   where each token's list begins: a scan within a warp's 32 tokens, and one addition a warp to a common end
//   place   list[start + slot] = n
//   order   a list in the order of n: each member counts the smaller ones
// The additions are of integers, and neither where a list lies nor the order it is filled in shows in the result. The
// lists take 3 N + 2 V integers, little beside d_out and the table. A row out of range is passed over: its loss is NaN
// already.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"

namespace trainer::cuda {
namespace {

constexpr int kListThreads = 256, kAddThreads = 128;

// Where row n of d_out goes: a row of the table, or nowhere (negative).
struct Places {
  const int32_t* ids;  // or nullptr: n % seq_len
  int64_t first, count, seq_len;
  __device__ int64_t operator[](int64_t n) const {
    const int64_t row = (ids ? ids[n] : n % seq_len) - first;
    return row < count ? row : -1;
  }
};
// In scratch: [table rows] counts and starts, [N] the others.
struct Lists {
  int32_t *counts, *end, *starts, *slots, *unordered, *ordered;
  Lists(int32_t* at, int64_t table_rows, int64_t n)
      : counts(at),
        end(at + table_rows),
        starts(end + 1),
        slots(starts + table_rows),
        unordered(slots + n),
        ordered(unordered + n) {}
  static size_t bytes(int64_t table_rows, int64_t n) { return size_t(2 * table_rows + 1 + 3 * n) * sizeof(int32_t); }
};

__device__ __forceinline__ int64_t this_thread() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }

__global__ void __launch_bounds__(kListThreads) count_kernel(Lists lists, Places places, int64_t n) {
  const int64_t i = this_thread();
  if (i >= n) return;
  const int64_t row = places[i];
  if (row >= 0) lists.slots[i] = atomicAdd(&lists.counts[row], 1);
}

__global__ void __launch_bounds__(kListThreads) start_kernel(Lists lists, int64_t table_rows) {
  const int64_t row = this_thread();
  const int own = row < table_rows ? lists.counts[row] : 0, lane = int(threadIdx.x % kWarp);
  int before = own;  // of this lane and those below it
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int below = __shfl_up_sync(kAllLanes, before, unsigned(offset));
    if (lane >= offset) before += below;
  }
  int begin = 0;
  if (lane == kWarp - 1 && before > 0) begin = atomicAdd(lists.end, before);
  begin = __shfl_sync(kAllLanes, begin, kWarp - 1);
  if (own > 0) lists.starts[row] = begin + before - own;
}

__global__ void __launch_bounds__(kListThreads) place_kernel(Lists lists, Places places, int64_t n) {
  const int64_t i = this_thread();
  if (i >= n) return;
  const int64_t row = places[i];
  if (row >= 0) lists.unordered[lists.starts[row] + lists.slots[i]] = int32_t(i);
}

__global__ void __launch_bounds__(kListThreads) order_kernel(Lists lists, Places places, int64_t n) {
  const int64_t i = this_thread();
  if (i >= n) return;
  const int64_t row = places[i];
  if (row < 0) return;
  const int32_t* list = lists.unordered + lists.starts[row];
  int smaller = 0;
  for (int m = 0; m < lists.counts[row]; ++m) smaller += list[m] < i;
  lists.ordered[lists.starts[row] + smaller] = int32_t(i);
}

// d_table[row] += the rows of d_out in `list`, in order: V columns a thread, f32, one rounding.
template <int V, class G, class T>
__device__ __forceinline__ void add_list(G* to, Rows<const T> d_out, int64_t column, int length, auto row_of) {
  constexpr int kAhead = 8;
  Floats<V> sum = load_floats<V>(to);
  const auto add = [&](const Pack<T, V>& pack) {
    const Floats<V> value = floats(pack);
#pragma unroll
    for (int i = 0; i < V; ++i) sum.at[i] += value.at[i];
  };
  int m = 0;
  for (; m + kAhead <= length; m += kAhead) {
    Pack<T, V> ahead[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) ahead[a] = load<V>(d_out[row_of(m + a)] + column);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) add(ahead[a]);
  }
  for (; m < length; ++m) add(load<V>(d_out[row_of(m)] + column));
  store_floats(to, sum);
}

// Blocks (n, tile of columns): the first row of a token's list does the work of all.
template <int V, class G, class T>
__global__ void __launch_bounds__(kAddThreads, 6)
    add_tokens_kernel(Rows<G> d_table, Rows<const T> d_out, Lists lists, Places places, int64_t columns) {
  const int64_t n = blockIdx.x, row = places[n], column = (int64_t(blockIdx.y) * blockDim.x + threadIdx.x) * V;
  if (row < 0 || column >= columns) return;
  const int32_t* list = lists.ordered + lists.starts[row];
  if (list[0] != n) return;
  add_list<V>(d_table[row] + column, d_out, column, lists.counts[row], [=](int m) { return int64_t(list[m]); });
}
// Blocks (position, tile of columns): rows position, position + seq_len and so on.
template <int V, class G, class T>
__global__ void __launch_bounds__(kAddThreads, 6)
    add_positions_kernel(Rows<G> d_table, Rows<const T> d_out, int64_t seq_len, int64_t rows, int64_t columns) {
  const int64_t position = blockIdx.x, column = (int64_t(blockIdx.y) * blockDim.x + threadIdx.x) * V;
  if (column >= columns) return;
  add_list<V>(d_table[position] + column, d_out, column, int((rows - position + seq_len - 1) / seq_len),
              [=](int m) { return position + m * seq_len; });
}

void sort(Stream& stream, const Lists& lists, const Places& places, int64_t table_rows, int64_t n) {
  const auto grid = [](int64_t work) { return dim3(unsigned(ceil_div(work, kListThreads))); };
  const dim3 block(kListThreads);
  cudaStream_t s = stream_of(stream);
  cudaMemsetAsync(lists.counts, 0, size_t(table_rows + 1) * sizeof(int32_t), s);
  CU_LAUNCH((count_kernel), grid(n), block, 0, s, lists, places, n);
  CU_LAUNCH((start_kernel), grid(table_rows), block, 0, s, lists, table_rows);
  CU_LAUNCH((place_kernel), grid(n), block, 0, s, lists, places, n);
  CU_LAUNCH((order_kernel), grid(n), block, 0, s, lists, places, n);
}

template <int V, class G, class T>
void add_rows(Stream& stream, const Tensor& d_table, const Tensor& d_out, const Places& places) {
  const int64_t n = d_out.rows(), columns = d_out.row_elements(), table_rows = d_table.rows();
  const int threads = threads_for(ceil_div(columns, V), kAddThreads);
  const auto tiles = unsigned(ceil_div(columns, int64_t{threads} * V));
  const Rows<G> to(d_table);
  const Rows<const T> from(d_out);
  if (!places.ids) {
    const dim3 grid(unsigned(places.seq_len < n ? places.seq_len : n), tiles);
    CU_LAUNCH((add_positions_kernel<V, G, T>), grid, dim3(threads), 0, stream_of(stream), to, from, places.seq_len, n,
              columns);
    return;
  }
  const Lists lists(scratch_of<int32_t>(stream), table_rows, n);
  sort(stream, lists, places, table_rows, n);
  CU_LAUNCH((add_tokens_kernel<V, G, T>), (dim3(unsigned(n), tiles)), dim3(threads), 0, stream_of(stream), to, from,
            lists, places, columns);
}

template <class G, class T>
void add_aligned(Stream& stream, const Tensor& d_table, const Tensor& d_out, const Places& places) {
  constexpr int V = kWideOfTwo<G, T>;
  const int64_t columns = d_out.row_elements();
  if (columns == 0 || d_out.rows() == 0) return;
  if (columns % V == 0 && aligned(V, {2, columns}, {&d_table, &d_out}))
    add_rows<V, G, T>(stream, d_table, d_out, places);
  else add_rows<1, G, T>(stream, d_table, d_out, places);
}

}  // namespace

size_t scratch_bytes(const EmbeddingGrad& op) {
  const int64_t n = op.d_out.rows(), tokens = op.d_table.rows();
  const int64_t positions = op.positions && op.d_position_table ? op.d_position_table.rows() : 0;
  return Lists::bytes(tokens > positions ? tokens : positions, n);
}

void run(Stream& stream, const EmbeddingGrad& op) {
  with_dtype(op.kName, {&op.d_table, &op.d_position_table}, [&]<class G>(G) {
    if (!op.accumulate) run(stream, Zero{op.d_table});
    if (op.d_position_table && !op.accumulate_positions) run(stream, Zero{op.d_position_table});
    with_dtype(op.kName, op.d_out.dtype, [&]<class T>(T) {
      add_aligned<G, T>(stream, op.d_table, op.d_out,
                        {data_as<const int32_t>(op.tokens), op.slice.first, op.slice.count, op.seq_len});
      if (op.d_position_table)
        add_aligned<G, T>(stream, op.d_position_table, op.d_out,
                          {data_as<const int32_t>(op.positions), 0, op.d_position_table.rows(), op.seq_len});
    });
  });
}

}  // namespace trainer::cuda
