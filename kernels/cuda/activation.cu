// GELU and SwiGLU with their gradients: bytes moved are the ideal, every operand once (of bf16: Gelu 4 bytes an
// element, GeluGrad 6, SwiGlu 6 an element of y, SwiGluGrad 10).
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"

namespace trainer::cuda {
namespace {

constexpr float kSlope = 1.5957691216f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)
constexpr float kLog2E = 1.44269504f;

// sigmoid(x), and 1 - sigmoid(x) to full precision, which a subtraction from 1 has not.
struct Sigmoid {
  float value, rest;
};
__device__ __forceinline__ Sigmoid sigmoid(float x) {
  const float e = exp2f(-kLog2E * fabsf(x)), large = __fdividef(1.0f, 1.0f + e), small = e * large;
  return x >= 0 ? Sigmoid{large, small} : Sigmoid{small, large};
}

struct GeluOf {
  __device__ float operator()(float x) const { return x * sigmoid(kSlope * x * (kCubic * x * x + 1)).value; }
};
struct GeluGradOf {
  __device__ float operator()(float d_y, float x) const {
    const float v = x > 32 ? 32 : x < -32 ? -32 : x;  // beyond, the slope is 0 or 1, and x^3 could overflow
    const Sigmoid s = sigmoid(kSlope * v * (kCubic * v * v + 1));
    return d_y * (v * s.value * s.rest * (3 * kSlope * kCubic * v * v + kSlope) + s.value);
  }
};
struct SwiGluOf {
  __device__ float operator()(float gate, float up) const { return gate * sigmoid(gate).value * up; }
};

template <int V, class T>
struct SwiGluGradRows {
  static constexpr int kInFlight = 1;
  struct Held {
    Pack<T, V> d_y, gate, up;
  };
  Rows<T> d_gate, d_up;
  Rows<const T> d_y, gate, up;
  __device__ Held load(const At& at) const {
    return {cuda::load<V>(d_y.at(at), at.count), cuda::load<V>(gate.at(at), at.count),
            cuda::load<V>(up.at(at), at.count)};
  }
  __device__ void store(const At& at, const Held& held) const {
    const Floats<V> d = floats(held.d_y), g = floats(held.gate), u = floats(held.up);
    Floats<V> to_gate, to_up;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const Sigmoid s = sigmoid(g.at[i]);
      const float silu = g.at[i] * s.value;
      to_up.at[i] = d.at[i] * silu;
      to_gate.at[i] = d.at[i] * u.at[i] * (silu * s.rest + s.value);
    }
    store_floats(d_gate.at(at), to_gate, at.count);
    store_floats(d_up.at(at), to_up, at.count);
  }
};

template <int V, class T>
void swiglu_grad(Stream& stream, const Extent& extent, const SwiGluGrad& op) {
  const Rows<T> d_gate_up(op.d_gate_up);
  const Rows<const T> gate_up(op.gate_up);
  SwiGluGradRows<V, T> rows{d_gate_up, d_gate_up, Rows<const T>(op.d_y), gate_up, gate_up};
  rows.d_up.data += op.d_y.row_elements();
  rows.up.data += op.d_y.row_elements();
  map<V>(stream, extent, rows);
}

}  // namespace

void run(Stream& stream, const Gelu& op) {
  with_dtype(op.kName, {&op.y, &op.x}, [&]<class T>(T) { map_one<T, T>(stream, GeluOf{}, op.y, op.x); });
}

void run(Stream& stream, const GeluGrad& op) {
  with_dtype(op.kName, {&op.d_x, &op.d_y, &op.x},
             [&]<class T>(T) { map_two<T, T, T>(stream, GeluGradOf{}, op.d_x, op.d_y, op.x); });
}

void run(Stream& stream, const SwiGlu& op) {
  const int64_t columns = op.y.row_elements();
  with_dtype(op.kName, {&op.y, &op.gate_up}, [&]<class T>(T) {
    map_two<T, T, T>(stream, SwiGluOf{}, op.y, column_part(op.gate_up, 0, columns),
                     column_part(op.gate_up, columns, 2 * columns));
  });
}

void run(Stream& stream, const SwiGluGrad& op) {
  const int64_t columns = op.d_y.row_elements();
  const Extent extent(op.d_y.rows(), columns);
  const Tensor gate = column_part(op.gate_up, 0, columns), up = column_part(op.gate_up, columns, 2 * columns),
               d_gate = column_part(op.d_gate_up, 0, columns), d_up = column_part(op.d_gate_up, columns, 2 * columns);
  with_dtype(op.kName, {&op.d_gate_up, &op.d_y, &op.gate_up}, [&]<class T>(T) {
    if (aligned(kWide<T>, extent, {&op.d_y, &gate, &up, &d_gate, &d_up})) swiglu_grad<kWide<T>, T>(stream, extent, op);
    else swiglu_grad<1, T>(stream, extent, op);
  });
}

}  // namespace trainer::cuda
