#include "kernels/cuda/matmul_plain.h"

#include "kernels/cuda/common.cuh"

namespace trainer::cuda {
namespace {

constexpr int kTile = 64;            // rows and columns of c per block
constexpr int kDepth = 16;           // of a and b in shared memory at a time
constexpr int kSide = 16;            // threads along a side of the tile
constexpr int kOwn = kTile / kSide;  // rows and columns of a thread: every 16th

__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float& to, float x) { to = x; }
__device__ __forceinline__ void narrow(__nv_bfloat16& to, float x) { to = __float2bfloat16(x); }

// Element (lane, depth) of a factor, where a lane is a row of op(a) or a column of op(b).
template <class T>
struct Factor {
  const T* data;
  int64_t lanes, depth, lane_step, depth_step;
};

template <class In, class Out>
struct Product {
  Factor<In> a, b;
  const In* bias;    // or null
  const Out* added;  // c or the residual, or null
  Out* c;
  int64_t stride_c, stride_added, column_tiles;
};

// Reads along what is dense in memory. Beyond the factor's ends there are zeros.
template <class T>
__device__ void load_tile(float (*tile)[kTile + 1], const Factor<T>& f, int64_t lane, int64_t depth) {
  for (int e = int(threadIdx.x); e < kTile * kDepth; e += kSide * kSide) {
    const bool along_depth = f.depth_step == 1;
    const int d = along_depth ? e % kDepth : e / kTile, l = along_depth ? e / kDepth : e % kTile;
    const bool inside = lane + l < f.lanes && depth + d < f.depth;
    tile[d][l] = inside ? widened(f.data[(lane + l) * f.lane_step + (depth + d) * f.depth_step]) : 0.0f;
  }
}

template <class In, class Out>
__device__ void store(const Product<In, Out>& p, int64_t row, int64_t column, float sum) {
  if (row >= p.a.lanes || column >= p.b.lanes) return;
  if (p.bias) sum += widened(p.bias[column]);
  if (p.added) sum += widened(p.added[row * p.stride_added + column]);
  narrow(p.c[row * p.stride_c + column], sum);
}

template <class In, class Out>
__global__ void __launch_bounds__(kSide* kSide) multiply_tile(Product<In, Out> p) {
  CU_SHARED(float, tile_a, [kDepth][kTile + 1]);
  CU_SHARED(float, tile_b, [kDepth][kTile + 1]);
  const int64_t row = int64_t(blockIdx.x) / p.column_tiles * kTile;
  const int64_t column = int64_t(blockIdx.x) % p.column_tiles * kTile;
  const int x = int(threadIdx.x) % kSide, y = int(threadIdx.x) / kSide;
  float sums[kOwn][kOwn] = {};
  for (int64_t depth = 0; depth < p.a.depth; depth += kDepth) {
    load_tile(tile_a, p.a, row, depth);
    load_tile(tile_b, p.b, column, depth);
    __syncthreads();
    for (int d = 0; d < kDepth; ++d)
      for (int i = 0; i < kOwn; ++i)
        for (int j = 0; j < kOwn; ++j) sums[i][j] += tile_a[d][y + kSide * i] * tile_b[d][x + kSide * j];
    __syncthreads();
  }
  for (int i = 0; i < kOwn; ++i)
    for (int j = 0; j < kOwn; ++j) store(p, row + y + kSide * i, column + x + kSide * j, sums[i][j]);
}

template <class T>
Factor<T> factor(const Tensor& t, int64_t lanes, int64_t depth, bool lanes_dense) {
  return {data_as<const T>(t), lanes, depth, lanes_dense ? 1 : t.stride(), lanes_dense ? t.stride() : 1};
}

template <class In, class Out>
void multiply(cudaStream_t stream, const MatMul& op) {
  const Tensor added = op.accumulate ? op.c : op.residual;
  const int64_t row_tiles = ceil_div(op.m(), kTile), column_tiles = ceil_div(op.n(), kTile);
  const Product<In, Out> product{factor<In>(op.a, op.m(), op.k(), op.transpose_a),
                                 factor<In>(op.b, op.n(), op.k(), !op.transpose_b),
                                 data_as<const In>(op.bias),
                                 data_as<const Out>(added),
                                 data_as<Out>(op.c),
                                 op.c.stride(),
                                 added.stride(),
                                 column_tiles};
  CU_LAUNCH((multiply_tile<In, Out>), dim3(unsigned(row_tiles * column_tiles)), dim3(kSide * kSide), 0, stream,
            product);
}

}  // namespace

void multiply_plain(cudaStream_t stream, const MatMul& op) {
  const bool narrow_in = op.a.dtype == DType::bf16, narrow_out = op.c.dtype == DType::bf16;
  if (narrow_in && narrow_out) return multiply<__nv_bfloat16, __nv_bfloat16>(stream, op);
  if (narrow_in) return multiply<__nv_bfloat16, float>(stream, op);
  if (narrow_out) return multiply<float, __nv_bfloat16>(stream, op);
  multiply<float, float>(stream, op);
}

}  // namespace trainer::cuda
