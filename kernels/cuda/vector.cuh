// Values as they lie in global memory and as floats. A pack is what one access moves: 16 bytes where the memory is
// aligned to it. Here the emulated device counts bytes: kernels whose count is tested (tests/cuda/moved_bytes_test.cpp)
// access global memory by these functions, or say cu_loads and cu_stores themselves.
#pragma once
#include <cstring>

#include "core/tensor/bf16.h"
#include "cuda_port.h"
#include "ptx.h"

namespace trainer::cuda {

// The bits of 1, 2, 4, 8 or 16 bytes as one access. A copy of a struct may become several accesses; one of these does
// not.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<16> {
  using type = uint4;
};
template <>
struct WordOf<8> {
  using type = uint2;
};
template <>
struct WordOf<4> {
  using type = uint32_t;
};
template <>
struct WordOf<2> {
  using type = uint16_t;
};
template <>
struct WordOf<1> {
  using type = uint8_t;
};

// V values of T.
template <class T, int V>
struct Pack {
  typename WordOf<int(sizeof(T)) * V>::type word;
};
template <int V>
struct Floats {
  float at[V];
};

// Of floats or bf16s, in the widest access; V of a tensor whose widest access is another's.
template <class T>
inline constexpr int kWide = 16 / int(sizeof(T));
template <class A, class B>
inline constexpr int kWideOfTwo = sizeof(A) < sizeof(B) ? kWide<B> : kWide<A>;

// The first `count` of V values at p, zeros behind them. REQUIRES: p is aligned to the pack, unless kAligned is false:
// then each value is an access of its own.
template <int V, bool kAligned = true, class T>
__device__ __forceinline__ Pack<T, V> load(const T* p, int count = V) {
  cu_loads(p, size_t(count) * sizeof(T));
  Pack<T, V> pack;
  if constexpr (V > 1)
    if (!kAligned || count < V) {
      using Value = typename WordOf<sizeof(T)>::type;
      Value values[V];
#pragma unroll
      for (int i = 0; i < V; ++i) values[i] = i < count ? *reinterpret_cast<const Value*>(p + i) : Value(0);
      memcpy(&pack.word, values, sizeof pack.word);
      return pack;
    }
  pack.word = *reinterpret_cast<const decltype(pack.word)*>(p);
  return pack;
}
template <int V, bool kAligned = true, class T>
__device__ __forceinline__ void store(T* p, const Pack<T, V>& pack, int count = V) {
  cu_stores(p, size_t(count) * sizeof(T));
  if constexpr (V > 1)
    if (!kAligned || count < V) {
      using Value = typename WordOf<sizeof(T)>::type;
      Value values[V];
      memcpy(values, &pack.word, sizeof pack.word);
#pragma unroll
      for (int i = 0; i < V; ++i)
        if (i < count) *reinterpret_cast<Value*>(p + i) = values[i];
      return;
    }
  *reinterpret_cast<decltype(Pack<T, V>::word)*>(p) = pack.word;
}

// A value of any type.
template <class T>
__device__ __forceinline__ T load_one(const T* p) {
  cu_loads(p, sizeof(T));
  return *p;
}
template <class T>
__device__ __forceinline__ void store_one(T* p, T value) {
  cu_stores(p, sizeof(T));
  *p = value;
}

template <int V>
__device__ __forceinline__ Floats<V> floats(const Pack<float, V>& pack) {
  Floats<V> x;
  memcpy(x.at, &pack.word, sizeof pack.word);
  return x;
}
template <int V>
__device__ __forceinline__ Floats<V> floats(const Pack<bf16, V>& pack) {
  Floats<V> x;
  if constexpr (V == 1) {
    x.at[0] = __uint_as_float(uint32_t(pack.word) << 16);
  } else {
    uint32_t pairs[V / 2];
    memcpy(pairs, &pack.word, sizeof pack.word);
#pragma unroll
    for (int i = 0; i < V / 2; ++i) {
      x.at[2 * i] = __uint_as_float(pairs[i] << 16);
      x.at[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
  }
  return x;
}

// Rounded to nearest even.
template <class T, int V>
__device__ __forceinline__ Pack<T, V> pack_of(const Floats<V>& x) {
  Pack<T, V> pack;
  if constexpr (sizeof(T) == 4) {
    memcpy(&pack.word, x.at, sizeof pack.word);
  } else if constexpr (V == 1) {
    pack.word = uint16_t(ptx::pack_bf16(x.at[0], 0));
  } else {
    uint32_t pairs[V / 2];
#pragma unroll
    for (int i = 0; i < V / 2; ++i) pairs[i] = ptx::pack_bf16(x.at[2 * i], x.at[2 * i + 1]);
    memcpy(&pack.word, pairs, sizeof pack.word);
  }
  return pack;
}
template <int V, bool kAligned = true, class T>
__device__ __forceinline__ Floats<V> load_floats(const T* p, int count = V) {
  return floats(load<V, kAligned>(p, count));
}
template <int V, bool kAligned = true, class T>
__device__ __forceinline__ void store_floats(T* p, const Floats<V>& x, int count = V) {
  store<V, kAligned>(p, pack_of<T>(x), count);
}

}  // namespace trainer::cuda
