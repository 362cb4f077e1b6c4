// RmsNormGrad and LayerNormGrad: bytes moved are the ideal, d_y, x, d_residual and d_x once, and beside them the sums
// for the weight. A block of threads walks down a piece of the rows; a lane keeps the same columns in every row, so it
// sums their share of the weight's gradient in registers. The kNormPartials blocks of rows are cut into up to kPieces
// pieces each, so that the whole chip works; their sums are added up in order by a second kernel (256 rows of f32 at
// most, of 2048 or more).
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/norm.cuh"

namespace trainer::cuda {
namespace {

constexpr int kHold = 2, kGradThreads = 256, kMostLanes = 512;
constexpr int64_t kPieces = 16, kRowsOfPiece = 8;  // at most; at least

// Both norms; what RMSNorm has not (mean) is empty.
template <class T>
struct NormGradRows {
  GroupRows<T> d_x;
  GroupRows<const T> d_y, x, d_residual;
  const T* weight;
  const float *mean, *rstd;
  uint32_t rows, groups;
  float* sums;  // [pieces of all blocks, columns] of the weight, then of the bias
};

// One row as its team sees it.
template <class T, bool kCentred>
struct NormGradRow {
  const T *x, *d_y, *d_residual;
  T* d_x;
  float mean, rstd;

  __device__ NormGradRow(const NormGradRows<T>& a, uint32_t row) {
    const uint32_t n = row / a.groups, group = row % a.groups;
    x = a.x.at(n, group);
    d_y = a.d_y.at(n, group);
    d_residual = a.d_residual ? a.d_residual.at(n, group) : nullptr;
    d_x = a.d_x.at(n, group);
    mean = kCentred ? load_one(a.mean + row) : 0;
    rstd = load_one(a.rstd + row);
  }
  // sums += of g * x_hat and of g, where g = d_y * weight; the first `count` columns' shares of the weight's and the
  // bias's gradient.
  template <int V>
  __device__ void sum_up(const Floats<V>& value, const Floats<V>& d, const Floats<V>& weight, float* sums,
                         float* to_weight, float* to_bias, int count = V) const {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (i >= count) break;
      const float x_hat = (value.at[i] - mean) * rstd, g = d.at[i] * weight.at[i];
      sums[0] += g * x_hat;
      to_weight[i] += d.at[i] * x_hat;
      if constexpr (kCentred) {
        sums[1] += g;
        to_bias[i] += d.at[i];
      }
    }
  }
  // d_x, where `along` is the part of the gradient along x_hat and `level` its mean.
  template <int V>
  __device__ Floats<V> slope(const Floats<V>& value, Floats<V> d, const Floats<V>& weight, const Floats<V>& onto,
                             float along, float level) const {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float x_hat = (value.at[i] - mean) * rstd;
      d.at[i] = (d.at[i] * weight.at[i] - level - x_hat * along) * rstd + onto.at[i];
    }
    return d;
  }
};

// `to` [columns]: the sums of the block's teams, one after the other through `shared` [kHold * V][lanes].
template <int V>
__device__ __forceinline__ void add_teams(float* to, const float* own, float* shared, int64_t columns) {
  const int lane = int(threadIdx.x), team = int(blockDim.x), last = int(blockDim.y) - 1;
  for (int t = 0; t <= last; ++t) {
    if (t > 0) __syncthreads();
    if (t != int(threadIdx.y)) continue;
#pragma unroll
    for (int i = 0; i < kHold * V; ++i) {
      float* at = shared + i * team + lane;
      const float total = (t > 0 ? *at : 0) + own[i];
      const int column = (lane + i / V * team) * V + i % V;
      if (t < last) *at = total;
      else if (column < columns) store_one(to + column, total);
    }
  }
}

template <class T, bool kCentred, bool kAligned>
__global__ void __launch_bounds__(kMostLanes) norm_grad_kernel(NormGradRows<T> a, int pieces) {
  constexpr int V = kWide<T>, kSums = kCentred ? 2 : 1;
  CU_SHARED(float, warps, [2][kWarp * kSums]);
  const int64_t columns = a.x.columns, block = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  const int64_t first = a.rows * block / kNormPartials, length = a.rows * (block + 1) / kNormPartials - first;
  const auto begin = uint32_t(first + length * piece / pieces), end = uint32_t(first + length * (piece + 1) / pieces);
  const int lane = int(threadIdx.x), team = int(blockDim.x), all = int((columns + V - 1) / V);
  float* const d_weight = a.sums + blockIdx.x * columns;
  float* const d_bias = kCentred ? d_weight + gridDim.x * columns : nullptr;
  const auto count = [&](int v) { return columns - int64_t(v) * V < V ? int(columns - int64_t(v) * V) : V; };
  const auto values = [&](const T* p, int v) { return load_floats<V, kAligned>(p + v * V, count(v)); };
  float weight_sum[kHold * V] = {}, bias_sum[kCentred ? kHold * V : 1] = {};
  for (int v = lane + kHold * team; v < all; v += team)  // beyond what the lanes hold: summed in memory
    for (int i = 0; i < count(v); ++i) {
      store_one(&d_weight[v * V + i], 0.0f);
      if constexpr (kCentred) store_one(&d_bias[v * V + i], 0.0f);
    }

  int turn = 0;
  for (uint32_t base = begin; base < end; base += blockDim.y, turn ^= 1) {
    const bool own = base + threadIdx.y < end;
    const NormGradRow<T, kCentred> row(a, own ? base + threadIdx.y : begin);
    const int vectors = own ? all : 0;
    Pack<T, V> xs[kHold] = {}, d_ys[kHold] = {};
#pragma unroll
    for (int h = 0; h < kHold; ++h)
      if (const int v = lane + h * team; v < vectors) {
        xs[h] = load<V, kAligned>(row.x + v * V, count(v));
        d_ys[h] = load<V, kAligned>(row.d_y + v * V, count(v));
      }
    float sums[kSums] = {};
#pragma unroll
    for (int h = 0; h < kHold; ++h)
      if (const int v = lane + h * team; v < vectors)
        row.sum_up(floats(xs[h]), floats(d_ys[h]), values(a.weight, v), sums, weight_sum + h * V,
                   bias_sum + (kCentred ? h * V : 0));
    for (int v = lane + kHold * team; v < vectors; v += team) {
      for (const float* to : {d_weight, d_bias})  // what sum_up adds to here is not in registers
        if (to) {
          cu_loads(to + v * V, size_t(count(v)) * sizeof(float));
          cu_stores(to + v * V, size_t(count(v)) * sizeof(float));
        }
      row.sum_up(values(row.x, v), values(row.d_y, v), values(a.weight, v), sums, d_weight + v * V,
                 kCentred ? d_bias + v * V : nullptr, count(v));
    }
    team_sum(sums, warps[turn]);
    const float along = sums[0] / float(columns), level = kCentred ? sums[kSums - 1] / float(columns) : 0;
    const auto finish = [&](int v, const Floats<V>& value, const Floats<V>& d) {
      const Floats<V> onto = row.d_residual ? values(row.d_residual, v) : Floats<V>{};
      const Floats<V> d_x = row.slope(value, d, values(a.weight, v), onto, along, level);
      store_floats<V, kAligned>(row.d_x + v * V, d_x, count(v));
    };
#pragma unroll
    for (int h = 0; h < kHold; ++h)
      if (const int v = lane + h * team; v < vectors) finish(v, floats(xs[h]), floats(d_ys[h]));
    for (int v = lane + kHold * team; v < vectors; v += team) finish(v, values(row.x, v), values(row.d_y, v));
  }
  auto* shared = cu_dyn_shared<float>();
  add_teams<V>(d_weight, weight_sum, shared, columns);
  if constexpr (kCentred) add_teams<V>(d_bias, bias_sum, shared + kHold * V * team, columns);
}

// Row b of `to` is the sum of rows [b * pieces, (b + 1) * pieces) of `from`, in order.
__global__ void __launch_bounds__(256) add_pieces_kernel(float* to, const float* from, int64_t columns, int pieces) {
  const int64_t column = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const float* at = from + blockIdx.y * pieces * columns + column;
  float sum = 0;
  for (int p = 0; p < pieces; ++p) sum += load_one(at + p * columns);
  store_one(&to[blockIdx.y * columns + column], sum);
}

template <class Op>
int pieces_of(const Op& op) {
  const int64_t rows = op.x.shape.rank == 3 ? op.x.rows() * op.x.shape[1] : op.x.rows();
  return int(std::clamp<int64_t>(rows / (kNormPartials * kRowsOfPiece), 1, kPieces));
}
template <class Op>
size_t bytes_of(const Op& op) {
  return pieces_of(op) == 1 ? 0 : size_t(pieces_of(op)) * op.partials.bytes();
}

template <bool kCentred, class T, class Op>
void norm_grad(Stream& stream, const Op& op, const float* mean) {
  NormGradRows<T> rows{};
  rows.d_x = GroupRows<T>(op.d_x);
  rows.d_y = GroupRows<const T>(op.d_y);
  rows.x = GroupRows<const T>(op.x);
  rows.d_residual = GroupRows<const T>(op.d_residual);
  rows.weight = data_as<const T>(op.weight);
  rows.mean = mean;
  rows.rstd = data_as<const float>(op.rstd);
  rows.rows = uint32_t(op.x.rows() * rows.x.groups);
  rows.groups = uint32_t(rows.x.groups);
  const int pieces = pieces_of(op), blocks = int(kNormPartials) * pieces;
  float* partials = data_as<float>(op.partials);
  rows.sums = pieces == 1 ? partials : scratch_of<float>(stream);
  const int64_t columns = rows.x.columns, vectors = ceil_div(columns, kWide<T>);
  if (columns == 0) return;
  const Team team = team_for(vectors, kHold, kMostLanes, kGradThreads, ceil_div(rows.rows, blocks));
  const size_t shared = team.rows == 1 ? 0 : size_t((kCentred ? 2 : 1) * kHold * kWide<T> * team.lanes) * sizeof(float);
  const dim3 grid{unsigned(blocks)}, block{unsigned(team.lanes), unsigned(team.rows)};
  if (rows_aligned({&op.d_x, &op.d_y, &op.x, &op.d_residual, &op.weight}))
    CU_LAUNCH((norm_grad_kernel<T, kCentred, true>), grid, block, shared, stream_of(stream), rows, pieces);
  else CU_LAUNCH((norm_grad_kernel<T, kCentred, false>), grid, block, shared, stream_of(stream), rows, pieces);
  if (pieces == 1) return;
  const int threads = threads_for(columns, 256);
  CU_LAUNCH((add_pieces_kernel),
            (dim3{unsigned(ceil_div(columns, threads)), unsigned(kCentred ? 2 : 1) * unsigned(kNormPartials)}),
            dim3(threads), 0, stream_of(stream), partials, rows.sums, columns, pieces);
}

}  // namespace

size_t scratch_bytes(const RmsNormGrad& op) { return bytes_of(op); }
size_t scratch_bytes(const LayerNormGrad& op) { return bytes_of(op); }

void run(Stream& stream, const RmsNormGrad& op) {
  with_dtype(op.kName, {&op.d_x, &op.d_y, &op.x, &op.weight, &op.d_residual},
             [&]<class T>(T) { norm_grad<false, T>(stream, op, nullptr); });
}

void run(Stream& stream, const LayerNormGrad& op) {
  with_dtype(op.kName, {&op.d_x, &op.d_y, &op.x, &op.weight, &op.d_residual},
             [&]<class T>(T) { norm_grad<true, T>(stream, op, data_as<const float>(op.mean)); });
}

}  // namespace trainer::cuda
