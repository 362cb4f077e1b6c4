// RMSNorm and LayerNorm: bytes moved are the ideal, x, residual, sum and y once, as the row stays in registers between
// its statistics and its result (of bf16: up to 32768 columns, of f32 16384; the columns beyond are read again). The
// weight comes from the caches.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/norm.cuh"

namespace trainer::cuda {
namespace {

constexpr int kHold = 4, kNormThreads = 256;

// Both norms; what RMSNorm has not (mean, bias) is empty.
template <class T>
struct NormRows {
  GroupRows<T> y, sum;
  GroupRows<const T> x, residual;
  const T *weight, *bias;
  float *mean, *rstd;
  uint32_t rows, groups;
  float epsilon;
};

// What is normalised, of one row: x, or x + residual as it is stored.
template <class T, bool kAligned>
struct NormInput {
  static constexpr int V = kWide<T>;
  const T *x, *residual;
  T* sum;
  int64_t columns;

  __device__ int count(int v) const { return columns - int64_t(v) * V < V ? int(columns - int64_t(v) * V) : V; }
  __device__ Pack<T, V> first(int v) const {
    const Pack<T, V> pack = load<V, kAligned>(x + v * V, count(v));
    if (!residual) return pack;
    Floats<V> total = floats(pack);
    const Floats<V> onto = load_floats<V, kAligned>(residual + v * V, count(v));
#pragma unroll
    for (int i = 0; i < V; ++i) total.at[i] += onto.at[i];
    const Pack<T, V> rounded = pack_of<T>(total);
    store<V, kAligned>(sum + v * V, rounded, count(v));
    return rounded;
  }
  __device__ Pack<T, V> again(int v) const { return load<V, kAligned>((residual ? sum : x) + v * V, count(v)); }
};

template <class T, bool kCentred, bool kAligned>
__global__ void __launch_bounds__(1024) norm_kernel(NormRows<T> a) {
  constexpr int V = kWide<T>;
  CU_SHARED(float, warps, [2][kWarp]);
  const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
  const bool own = row < a.rows;
  const uint32_t n = own ? row / a.groups : 0, group = own ? row % a.groups : 0;
  const NormInput<T, kAligned> in{a.x.at(n, group), a.residual ? a.residual.at(n, group) : nullptr,
                                  a.residual ? a.sum.at(n, group) : nullptr, a.x.columns};
  const auto columns = float(in.columns);
  const int lane = int(threadIdx.x), team = int(blockDim.x), vectors = own ? int((in.columns + V - 1) / V) : 0;

  Pack<T, V> held[kHold] = {};
  // f(vector, its pack) for this lane's vectors: those it holds, and `beyond` of the others.
  const auto each = [&](auto beyond, auto f) {
#pragma unroll
    for (int h = 0; h < kHold; ++h)
      if (const int v = lane + h * team; v < vectors) f(v, held[h]);
    for (int v = lane + kHold * team; v < vectors; v += team) f(v, beyond(v));
  };
#pragma unroll
  for (int h = 0; h < kHold; ++h)
    if (const int v = lane + h * team; v < vectors) held[h] = in.first(v);
  const auto first = [&](int v) { return in.first(v); };
  const auto again = [&](int v) { return in.again(v); };
  float mean[1] = {}, squares[1] = {};
  if constexpr (kCentred) {
    each(first, [&](int, const Pack<T, V>& pack) {
      const Floats<V> value = floats(pack);
#pragma unroll
      for (int i = 0; i < V; ++i) mean[0] += value.at[i];
    });
    team_sum(mean, warps[0]);
    mean[0] /= columns;
  }
  const auto square = [&](int v, const Pack<T, V>& pack) {
    const Floats<V> value = floats(pack);
#pragma unroll
    for (int i = 0; i < V; ++i)
      if (const float d = value.at[i] - mean[0]; i < in.count(v)) squares[0] += d * d;
  };
  if constexpr (kCentred) each(again, square);
  else each(first, square);
  team_sum(squares, warps[1]);
  const float rstd = rsqrtf(squares[0] / columns + a.epsilon);
  if (lane == 0 && own) {
    store_one(a.rstd + row, rstd);
    if constexpr (kCentred) store_one(a.mean + row, mean[0]);
  }
  T* y = a.y.at(n, group);
  each(again, [&](int v, const Pack<T, V>& pack) {
    Floats<V> value = floats(pack), bias{};
    const Floats<V> weight = load_floats<V, kAligned>(a.weight + v * V, in.count(v));
    if constexpr (kCentred) bias = load_floats<V, kAligned>(a.bias + v * V, in.count(v));
#pragma unroll
    for (int i = 0; i < V; ++i) value.at[i] = (value.at[i] - mean[0]) * rstd * weight.at[i] + bias.at[i];
    store_floats<V, kAligned>(y + v * V, value, in.count(v));
  });
}

template <bool kCentred, class T>
void launch_norm(Stream& stream, const NormRows<T>& rows, bool aligned) {
  if (rows.rows == 0) return;
  const Team team = team_for(ceil_div(rows.x.columns, kWide<T>), kHold, 1024, kNormThreads, rows.rows);
  const dim3 grid{unsigned(ceil_div(rows.rows, team.rows))}, block{unsigned(team.lanes), unsigned(team.rows)};
  if (aligned) CU_LAUNCH((norm_kernel<T, kCentred, true>), grid, block, 0, stream_of(stream), rows);
  else CU_LAUNCH((norm_kernel<T, kCentred, false>), grid, block, 0, stream_of(stream), rows);
}
template <class T, class Op>
NormRows<T> norm_rows(const Op& op) {
  NormRows<T> rows{};
  rows.y = GroupRows<T>(op.y);
  rows.sum = GroupRows<T>(op.sum);
  rows.x = GroupRows<const T>(op.x);
  rows.residual = GroupRows<const T>(op.residual);
  rows.weight = data_as<const T>(op.weight);
  rows.rstd = data_as<float>(op.rstd);
  rows.rows = uint32_t(op.x.rows() * rows.x.groups);
  rows.groups = uint32_t(rows.x.groups);
  rows.epsilon = op.epsilon;
  return rows;
}

}  // namespace

void run(Stream& stream, const RmsNorm& op) {
  with_dtype(op.kName, {&op.y, &op.x, &op.weight, &op.residual, &op.sum}, [&]<class T>(T) {
    launch_norm<false>(stream, norm_rows<T>(op), rows_aligned({&op.y, &op.x, &op.weight, &op.residual, &op.sum}));
  });
}

void run(Stream& stream, const LayerNorm& op) {
  with_dtype(op.kName, {&op.y, &op.x, &op.weight, &op.bias, &op.residual, &op.sum}, [&]<class T>(T) {
    auto rows = norm_rows<T>(op);
    rows.bias = data_as<const T>(op.bias);
    rows.mean = data_as<float>(op.mean);
    launch_norm<true>(stream, rows, rows_aligned({&op.y, &op.x, &op.weight, &op.bias, &op.residual, &op.sum}));
  });
}

}  // namespace trainer::cuda
