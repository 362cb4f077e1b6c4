// A tensor is a view: it owns nothing, allocates nothing, copies nothing.
//
// Letters, everywhere: B micro-batch, T local tokens, N = B*T rows, C width, H heads, K kv-heads, D head width, F feed-forward
// width, V vocabulary, E experts, L layers.
#pragma once
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace trainer {

enum class DType : uint8_t { f32, bf16, f8e4m3, f8e5m2, i32, i64, u8, f64 };

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16: return 2;
    case DType::i64:
    case DType::f64: return 8;
    case DType::f8e4m3:
    case DType::f8e5m2:
    case DType::u8: return 1;
  }
  return 0;
}
std::string_view name_of(DType);

struct Shape {
  std::array<int64_t, 4> dims{};
  int rank = 0;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<int64_t> d) {
    assert(d.size() <= 4);
    for (int64_t x : d) dims[size_t(rank++)] = x;
  }
  constexpr int64_t operator[](int i) const { return dims[size_t(i)]; }
  constexpr int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[size_t(i)];
    return n;
  }
  constexpr bool operator==(const Shape&) const = default;
};

// Row-major. Only the first dimension may be strided (a column slice of a fused QKV): the others are dense.
struct Tensor {
  std::byte* data = nullptr;
  Shape shape;
  int64_t row_stride = 0;  // elements from one index of the first dimension to the next; 0: dense
  DType dtype = DType::bf16;

  explicit operator bool() const { return data != nullptr; }
  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return size_t(elements()) * size_of(dtype); }  // of its values, not of what it spans
  int64_t rows() const { return shape[0]; }
  int64_t row_elements() const { return shape.rank == 0 || shape[0] == 0 ? 0 : elements() / shape[0]; }
  int64_t stride() const { return row_stride ? row_stride : row_elements(); }
  bool dense() const { return stride() == row_elements(); }
};

inline Tensor make_tensor(std::byte* data, DType dtype, Shape shape) {
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  t.shape = shape;
  return t;
}

// Elements [begin, end) of a dense tensor, as one dimension.
inline Tensor flat_part(const Tensor& t, int64_t begin, int64_t end) {
  assert(t.dense());
  return make_tensor(t.data + size_t(begin) * size_of(t.dtype), t.dtype, {end - begin});
}
// Rows [begin, end).
inline Tensor row_part(const Tensor& t, int64_t begin, int64_t end) {
  Tensor p = t;
  p.data += begin * t.stride() * int64_t(size_of(t.dtype));
  p.shape.dims[0] = end - begin;
  p.row_stride = t.row_stride;
  return p;
}
// Columns [begin, end) of a matrix, as [rows, groups, (end - begin) / groups] where groups > 0.
inline Tensor column_part(const Tensor& t, int64_t begin, int64_t end, int64_t groups = 0) {
  assert(t.shape.rank == 2);
  Tensor p = t;
  p.data += begin * int64_t(size_of(t.dtype));
  p.shape = groups ? Shape{t.shape[0], groups, (end - begin) / groups} : Shape{t.shape[0], end - begin};
  p.row_stride = t.stride();
  return p;
}
inline Tensor reshaped(const Tensor& t, Shape shape) {
  assert(t.dense() && t.elements() == shape.elements());
  return make_tensor(t.data, t.dtype, shape);
}

template <class T>
T* data_as(const Tensor& t) {
  return reinterpret_cast<T*>(t.data);
}

struct Cost {
  double flops = 0, bytes = 0;
};

}  // namespace trainer
