// Element-wise kernels: vectors of V elements laid over the rows of some tensors, each loaded, computed and stored by
// one thread.
//
// What a kernel does is a functor F<V>:
//   struct Held;                                       registers between the loads and the stores
//   Held load(const At&) const; void store(const At&, const Held&) const;
//   static constexpr int kInFlight;                    vectors that a thread loads before it stores the first
// Every operand passes through the chip once. All of a thread's loads are issued before its first store, as operands
// may overlap (in place) and the compiler may not reorder them itself: with 2048 threads per multiprocessor, one
// 16-byte load a thread keeps 32 KB in flight, where an H100 needs about 16 (3.35 TB/s at 600 ns over 132
// multiprocessors).
#pragma once
#include <initializer_list>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/vector.cuh"

namespace trainer::cuda {

// Elements [column, column + count) of a row; count is V but at the end of a row.
struct At {
  int64_t row, column;
  int count;
};

template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;

  Rows() = default;
  explicit Rows(const Tensor& t) : data(reinterpret_cast<T*>(t.data)), stride(t.shape.rank ? t.stride() : 0) {}
  __device__ explicit operator bool() const { return data != nullptr; }
  __device__ T* operator[](int64_t row) const { return data + row * stride; }
  __device__ T* at(const At& a) const { return data + a.row * stride + a.column; }
};

// Tensors as rows of columns: one row where all are dense, otherwise the rows of the first.
struct Extent {
  int64_t rows = 1, columns = 0;

  Extent(int64_t rows_, int64_t columns_) : rows(rows_), columns(columns_) {}
  explicit Extent(std::initializer_list<const Tensor*> tensors) {
    bool dense = true;
    for (const Tensor* t : tensors) dense = dense && (!*t || t->dense());
    const Tensor& first = **tensors.begin();
    rows = dense ? 1 : first.rows();
    columns = dense ? first.elements() : first.row_elements();
  }
};

// Whether each row of every tensor may be accessed in packs of V.
inline bool aligned(int V, const Extent& extent, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors) {
    if (!*t) continue;
    const auto bytes = uint64_t(V) * size_of(t->dtype);
    if (reinterpret_cast<uintptr_t>(t->data) % bytes) return false;
    if (extent.rows > 1 && uint64_t(t->stride()) * size_of(t->dtype) % bytes) return false;
  }
  return true;
}

// The 64-bit division is many instructions; nearly always both fit in 32 bits.
__device__ __forceinline__ int64_t divide(int64_t a, int64_t b) {
  return (uint64_t(a) | uint64_t(b)) >> 32 ? a / b : int64_t(uint32_t(a) / uint32_t(b));
}

inline constexpr int kMapThreads = 256;

template <int V, int kInFlight, class F>
__global__ void __launch_bounds__(kMapThreads) map_kernel(F f, int64_t vectors, int64_t per_row, int64_t columns) {
  At at[kInFlight] = {};
  typename F::Held held[kInFlight] = {};
  const int64_t first = int64_t(blockIdx.x) * kInFlight * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) {
    const int64_t vector = first + int64_t(i) * blockDim.x;
    at[i] = {0, vector * V, 0};
    if (vector >= vectors) continue;
    if (per_row < vectors) {
      at[i].row = divide(vector, per_row);
      at[i].column = (vector - at[i].row * per_row) * V;
    }
    at[i].count = columns - at[i].column < V ? int(columns - at[i].column) : V;
    held[i] = f.load(at[i]);
  }
#pragma unroll
  for (int i = 0; i < kInFlight; ++i)
    if (at[i].count) f.store(at[i], held[i]);
}

// f over all of `extent`.
template <int V, class F>
void map(Stream& stream, const Extent& extent, const F& f) {
  constexpr int kInFlight = V == 1 ? 4 : F::kInFlight;
  const int64_t per_row = ceil_div(extent.columns, V), vectors = per_row * extent.rows;
  if (vectors == 0) return;
  const int threads = threads_for(ceil_div(vectors, kInFlight), kMapThreads);
  CU_LAUNCH((map_kernel<V, kInFlight, F>), dim3(unsigned(ceil_div(vectors, int64_t{kInFlight} * threads))),
            dim3(threads), 0, stream_of(stream), f, vectors, per_row, extent.columns);
}

// to = f(a), element by element.
template <int V, class F, class To, class A>
struct MapOne {
  static constexpr int kInFlight = 2;
  using Held = Pack<A, V>;
  F f;
  Rows<To> to;
  Rows<const A> a;
  __device__ Held load(const At& at) const { return cuda::load<V>(a.at(at), at.count); }
  __device__ void store(const At& at, const Held& held) const {
    Floats<V> x = floats(held);
#pragma unroll
    for (int i = 0; i < V; ++i) x.at[i] = f(x.at[i]);
    store_floats(to.at(at), x, at.count);
  }
};
// to = f(a, b), element by element.
template <int V, class F, class To, class A, class B>
struct MapTwo {
  static constexpr int kInFlight = 2;
  struct Held {
    Pack<A, V> a;
    Pack<B, V> b;
  };
  F f;
  Rows<To> to;
  Rows<const A> a;
  Rows<const B> b;
  __device__ Held load(const At& at) const {
    return {cuda::load<V>(a.at(at), at.count), cuda::load<V>(b.at(at), at.count)};
  }
  __device__ void store(const At& at, const Held& held) const {
    Floats<V> x = floats(held.a);
    const Floats<V> y = floats(held.b);
#pragma unroll
    for (int i = 0; i < V; ++i) x.at[i] = f(x.at[i], y.at[i]);
    store_floats(to.at(at), x, at.count);
  }
};

template <class To, class A, class F>
void map_one(Stream& stream, const F& f, const Tensor& to, const Tensor& a) {
  constexpr int V = kWideOfTwo<To, A>;
  const Extent extent({&to, &a});
  if (aligned(V, extent, {&to, &a})) map<V>(stream, extent, MapOne<V, F, To, A>{f, Rows<To>(to), Rows<const A>(a)});
  else map<1>(stream, extent, MapOne<1, F, To, A>{f, Rows<To>(to), Rows<const A>(a)});
}
template <class To, class A, class B, class F>
void map_two(Stream& stream, const F& f, const Tensor& to, const Tensor& a, const Tensor& b) {
  constexpr int V = kWideOfTwo<To, A> < kWide<B> ? kWideOfTwo<To, A> : kWide<B>;
  const Extent extent({&to, &a, &b});
  const Rows<To> to_rows(to);
  const Rows<const A> a_rows(a);
  const Rows<const B> b_rows(b);
  if (aligned(V, extent, {&to, &a, &b})) map<V>(stream, extent, MapTwo<V, F, To, A, B>{f, to_rows, a_rows, b_rows});
  else map<1>(stream, extent, MapTwo<1, F, To, A, B>{f, to_rows, a_rows, b_rows});
}

}  // namespace trainer::cuda
