#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grid.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {

constexpr float kSlope = 1.5957691216f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)

template <class T>
void gelu(T* y, const T* x, size_t n) {
  for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
    const V v = load(x + i, part);
    const V u = hn::Mul(hn::Mul(set(kSlope), v), hn::MulAdd(hn::Mul(set(kCubic), v), v, set(1.0f)));
    store(hn::Mul(v, sigmoid(u)), y + i, part);
  });
}

template <class T>
void gelu_grad(T* d_x, const T* d_y, const T* x, size_t n) {
  for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
    // Beyond 32 the slope is 0 or 1, and x^3 could overflow.
    const V v = hn::Max(set(-32.0f), hn::Min(set(32.0f), load(x + i, part))), v2 = hn::Mul(v, v);
    V rest;
    const V s = sigmoid(hn::Mul(hn::Mul(set(kSlope), v), hn::MulAdd(set(kCubic), v2, set(1.0f))), rest);
    const V du = hn::MulAdd(set(3 * kSlope * kCubic), v2, set(kSlope));
    const V slope = hn::MulAdd(hn::Mul(hn::Mul(v, s), rest), du, s);
    store(hn::Mul(load(d_y + i, part), slope), d_x + i, part);
  });
}

template <class T>
void swiglu(T* y, const T* gate, const T* up, size_t n) {
  for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
    const V g = load(gate + i, part);
    store(hn::Mul(hn::Mul(g, sigmoid(g)), load(up + i, part)), y + i, part);
  });
}

// gate | up and their gradients lie n elements apart.
template <class T>
void swiglu_grad(T* d_gate_up, const T* d_y, const T* gate_up, size_t n) {
  for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
    const V g = load(gate_up + i, part), u = load(gate_up + n + i, part), d = load(d_y + i, part);
    V rest;
    const V s = sigmoid(g, rest), silu = hn::Mul(g, s);
    store(hn::Mul(d, silu), d_gate_up + n + i, part);
    store(hn::Mul(hn::Mul(d, u), hn::MulAdd(silu, rest, s)), d_gate_up + i, part);
  });
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {

void run(Stream& stream, const Gelu& op) {
  with_dtype(op.kName, {&op.y, &op.x}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(gelu<T>);
    for_spans<2>(stream, {op.y, op.x}, [&](auto s) { kernel(s.template as<T>(0), s.template as<T>(1), s.count); });
  });
}

void run(Stream& stream, const GeluGrad& op) {
  with_dtype(op.kName, {&op.d_x, &op.d_y, &op.x}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(gelu_grad<T>);
    for_spans<3>(stream, {op.d_x, op.d_y, op.x},
                 [&](auto s) { kernel(s.template as<T>(0), s.template as<T>(1), s.template as<T>(2), s.count); });
  });
}

void run(Stream& stream, const SwiGlu& op) {
  with_dtype(op.kName, {&op.y, &op.gate_up}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(swiglu<T>);
    const Rows<T> y(op.y);
    const Rows<const T> gate_up(op.gate_up);
    for_rows(pool_of(stream), y.count, gate_up.columns, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) kernel(y[r], gate_up[r], gate_up[r] + y.columns, size_t(y.columns));
    });
  });
}

void run(Stream& stream, const SwiGluGrad& op) {
  with_dtype(op.kName, {&op.d_gate_up, &op.d_y, &op.gate_up}, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(swiglu_grad<T>);
    const Rows<T> d_gate_up(op.d_gate_up);
    const Rows<const T> d_y(op.d_y), gate_up(op.gate_up);
    for_rows(pool_of(stream), d_y.count, gate_up.columns, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) kernel(d_gate_up[r], d_y[r], gate_up[r], size_t(d_y.columns));
    });
  });
}

}  // namespace trainer::cpu
#endif  // HWY_ONCE
