// CUDA's atomics: relaxed, as on the device, and a place where another thread may run.
#pragma once
#include <atomic>
#include <type_traits>

namespace cuemu {

void yield_thread();

template <class T, class F>
T read_modify_write(T* p, F f) {
  std::atomic_ref<T> a(*p);
  T old = a.load(std::memory_order_relaxed);
  while (!a.compare_exchange_weak(old, f(old), std::memory_order_relaxed)) {}
  yield_thread();
  return old;
}

}  // namespace cuemu

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return cuemu::read_modify_write(p, [v](T old) { return T(old + v); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return cuemu::read_modify_write(p, [v](T old) { return old > v ? old : v; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return cuemu::read_modify_write(p, [v](T old) { return old < v ? old : v; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  return cuemu::read_modify_write(p, [v](T old) { return T(old | v); });
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
  return cuemu::read_modify_write(p, [v](T old) { return T(old & v); });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return cuemu::read_modify_write(p, [v](T) { return v; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return cuemu::read_modify_write(p, [=](T old) { return old == expected ? v : old; });
}
