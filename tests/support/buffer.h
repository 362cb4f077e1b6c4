// A tensor that owns its memory, for tests: every value as a double, canaries around and between its rows.
#pragma once
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "core/tensor/bf16.h"
#include "core/tensor/tensor.h"
#include "device_memory.h"

namespace trainer::test {

using Values = std::vector<double>;

// Uniform in [-scale, scale].
inline Values random_values(int64_t n, uint32_t seed, double scale = 1) {
  std::minstd_rand engine(seed * 2654435761u + 1);
  std::uniform_real_distribution<double> uniform(-scale, scale);
  Values v(static_cast<size_t>(n));
  for (double& x : v) x = uniform(engine);
  return v;
}
inline double round_to(DType dtype, double x) {
  if (dtype == DType::f32) return double(float(x));
  if (dtype == DType::bf16) return double(to_float(to_bf16(float(x))));
  return x;
}

// `gap` elements lie unused between rows; `shift` elements before the first value take it off every alignment.
struct Spacing {
  int64_t gap = 0, shift = 0;
};

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer&&) = default;
  Buffer(DType dtype, Shape shape) : Buffer(dtype, shape, Spacing{}) {}
  Buffer(DType dtype, Shape shape, Spacing spacing) {
    tensor_.dtype = dtype;
    tensor_.shape = shape;
    if (spacing.gap) tensor_.row_stride = tensor_.row_elements() + spacing.gap;
    const int64_t spanned = shape.elements() ? (tensor_.rows() - 1) * tensor_.stride() + tensor_.row_elements() : 0;
    begin_ = size_t(spacing.shift) * size_of(dtype);
    end_ = begin_ + size_t(spanned) * size_of(dtype);
    memory_.assign(end_ + kTail, kCanary);
    tensor_.data = memory_.data() + begin_;
  }
  Buffer(DType dtype, Shape shape, const Values& values, Spacing spacing = {}) : Buffer(dtype, shape, spacing) {
    set(values);
  }

  const Tensor& tensor() const { return tensor_; }
  operator const Tensor&() const { return tensor_; }
  int64_t elements() const { return tensor_.elements(); }

  void set(const Values& values) {
    for (int64_t i = 0; i < elements(); ++i) put(at(i), values[size_t(i)]);
  }
  void fill(double value) { set(Values(size_t(elements()), value)); }
  // In the order of indices, without gaps.
  Values values() const {
    Values v(static_cast<size_t>(elements()));
    for (int64_t i = 0; i < elements(); ++i) v[size_t(i)] = get(at(i));
    return v;
  }
  // Every byte, gaps and canaries included: equal means bit-identical and nothing written outside.
  std::vector<std::byte> bytes() const { return {memory_.begin(), memory_.end()}; }
  void restore(const std::vector<std::byte>& bytes) { std::copy(bytes.begin(), bytes.end(), memory_.begin()); }
  // Nothing was written before, between or behind the rows.
  bool intact() const {
    std::vector<bool> own(end_ + kTail);
    for (int64_t i = 0; i < elements(); ++i)
      for (size_t b = 0; b < size_of(tensor_.dtype); ++b) own[size_t(at(i) - memory_.data()) + b] = true;
    for (size_t i = 0; i < own.size(); ++i)
      if (!own[i] && memory_[i] != kCanary) return false;
    return true;
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t kTail = 0;  // the sanitizer's red zone sees reads as well
#else
  static constexpr size_t kTail = 64;
#endif
  static constexpr std::byte kCanary{0xa5};

  std::byte* at(int64_t i) const {
    const int64_t columns = tensor_.row_elements();
    return tensor_.data + (i / columns * tensor_.stride() + i % columns) * int64_t(size_of(tensor_.dtype));
  }
  template <class T>
  static void put_as(std::byte* p, T value) {
    std::memcpy(p, &value, sizeof value);
  }
  template <class T>
  static T get_as(const std::byte* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  void put(std::byte* p, double x) const {
    switch (tensor_.dtype) {
      case DType::f32: return put_as(p, float(x));
      case DType::bf16: return put_as(p, to_bf16(float(x)));
      case DType::i32: return put_as(p, int32_t(x));
      case DType::i64: return put_as(p, int64_t(x));
      case DType::f64: return put_as(p, x);
      default: assert(false);
    }
  }
  double get(const std::byte* p) const {
    switch (tensor_.dtype) {
      case DType::f32: return get_as<float>(p);
      case DType::bf16: return to_float(get_as<bf16>(p));
      case DType::i32: return get_as<int32_t>(p);
      case DType::i64: return double(get_as<int64_t>(p));
      case DType::f64: return get_as<double>(p);
      default: assert(false); return 0;
    }
  }

  std::vector<std::byte, DeviceAllocator<std::byte>> memory_;
  size_t begin_ = 0, end_ = 0;
  Tensor tensor_;
};

// Random values of [-scale, scale], rounded to the dtype.
inline Buffer random_buffer(DType dtype, Shape shape, uint32_t seed, double scale = 1, Spacing spacing = {}) {
  return Buffer(dtype, shape, random_values(shape.elements(), seed, scale), spacing);
}

}  // namespace trainer::test
