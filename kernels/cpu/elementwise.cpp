#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>

#include <cstring>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grid.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::cpu::HWY_NAMESPACE {

template <class To, class From>
void convert(To* to, const From* from, size_t n) {
  for_vectors(n, [&](size_t i, auto part) HWY_ATTR { store(load(from + i, part), to + i, part); });
}

template <class To, class From>
void add(To* to, const To* base, const From* from, size_t n) {
  for_vectors(n, [&](size_t i, auto part)
                     HWY_ATTR { store(hn::Add(load(base + i, part), load(from + i, part)), to + i, part); });
}

template <class T>
void scale(T* x, float factor, size_t n) {
  for_vectors(n, [&](size_t i, auto part) HWY_ATTR { store(hn::Mul(load(x + i, part), set(factor)), x + i, part); });
}

// sum [n] += the rows of x, four at a time.
template <class T>
void add_columns(float* sum, const T* x, int64_t stride, int64_t rows, size_t n) {
  for (; rows >= 4; rows -= 4, x += 4 * stride)
    for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
      const V a = hn::Add(load(x + i, part), load(x + stride + i, part));
      const V b = hn::Add(load(x + 2 * stride + i, part), load(x + 3 * stride + i, part));
      store(hn::Add(load(sum + i, part), hn::Add(a, b)), sum + i, part);
    });
  for (; rows > 0; --rows, x += stride)
    for_vectors(n, [&](size_t i, auto part)
                       HWY_ATTR { store(hn::Add(load(sum + i, part), load(x + i, part)), sum + i, part); });
}

}  // namespace trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::cpu {
namespace {

// Few rows are summed in place, many as blocks whose sums lie in scratch: a function of the shape, as it decides the
// order.
constexpr int64_t kBlocks = 16, kRowsOfBlocks = 64, kColumnsOfTask = 1024;

int64_t row_blocks(const ColumnSum& op) { return op.x.rows() < kRowsOfBlocks ? 1 : kBlocks; }

}  // namespace

void run(Stream&, const Upload& op) { std::memcpy(op.to.data, op.from, op.to.bytes()); }

void run(Stream& stream, const Copy& op) {
  if (op.to.dtype == op.from.dtype)
    return for_spans<2>(stream, {op.to, op.from},
                        [size = size_of(op.to.dtype)](auto s) { std::memcpy(s.at[0], s.at[1], s.count * size); });
  with_dtype(op.kName, op.to.dtype, [&]<class To>(To) {
    with_dtype(op.kName, op.from.dtype, [&]<class From>(From) {
      const auto kernel = TRAINER_VECTOR(convert<To, From>);
      for_spans<2>(stream, {op.to, op.from},
                   [&](auto s) { kernel(s.template as<To>(0), s.template as<From>(1), s.count); });
    });
  });
}

void run(Stream& stream, const Add& op) {
  const Tensor& base = op.base ? op.base : op.to;
  with_dtype(op.kName, {&op.to, &base}, [&]<class To>(To) {
    with_dtype(op.kName, op.from.dtype, [&]<class From>(From) {
      const auto kernel = TRAINER_VECTOR(add<To, From>);
      for_spans<3>(stream, {op.to, base, op.from}, [&](auto s) {
        kernel(s.template as<To>(0), s.template as<To>(1), s.template as<From>(2), s.count);
      });
    });
  });
}

void run(Stream& stream, const Scale& op) {
  with_dtype(op.kName, op.x.dtype, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(scale<T>);
    for_spans<1>(stream, {op.x}, [&](auto s) { kernel(s.template as<T>(0), op.factor, s.count); });
  });
}

void run(Stream& stream, const Zero& op) {
  for_spans<1>(stream, {op.x}, [size = size_of(op.x.dtype)](auto s) { std::memset(s.at[0], 0, s.count * size); });
}

// What is not f32 is summed in a row of scratch, and rounded from there.
size_t scratch_bytes(const ColumnSum& op) {
  const int64_t blocks = row_blocks(op), rows = (blocks == 1 ? 0 : blocks) + (op.sum.dtype == DType::f32 ? 0 : 1);
  return size_t(rows * op.x.row_elements()) * sizeof(float);
}

void run(Stream& stream, const ColumnSum& op) {
  const int64_t blocks = row_blocks(op), rows = op.x.rows(), columns = op.x.row_elements(), stride = op.x.stride();
  const int64_t pieces = (columns + kColumnsOfTask - 1) / kColumnsOfTask;
  const bool direct = op.sum.dtype == DType::f32, onto = direct && op.accumulate;
  const Tensor total = direct ? op.sum : make_tensor(stream.scratch().data(), DType::f32, {columns});
  float* sum = data_as<float>(total);
  float* partials = blocks == 1 ? sum : reinterpret_cast<float*>(stream.scratch().data()) + (direct ? 0 : columns);
  const auto piece = [&](int64_t p, auto f) {
    f(p * kColumnsOfTask, std::min(kColumnsOfTask, columns - p * kColumnsOfTask));
  };
  with_dtype(op.kName, op.x.dtype, [&]<class T>(T) {
    const auto kernel = TRAINER_VECTOR(add_columns<T>);
    for_tasks(pool_of(stream), blocks * pieces, rows * columns, [&](int64_t task) {
      const int64_t b = task / pieces, begin = rows * b / blocks, end = rows * (b + 1) / blocks;
      piece(task % pieces, [&](int64_t c, int64_t n) {
        float* to = partials + b * columns + c;
        if (blocks > 1 || !onto) std::fill_n(to, n, 0.0f);
        kernel(to, data_as<const T>(op.x) + begin * stride + c, stride, end - begin, size_t(n));
      });
    });
  });
  if (blocks > 1) {
    const auto kernel = TRAINER_VECTOR(add_columns<float>);
    for_tasks(pool_of(stream), pieces, blocks * columns, [&](int64_t task) {
      piece(task, [&](int64_t c, int64_t n) {
        if (!onto) std::fill_n(sum + c, n, 0.0f);
        kernel(sum + c, partials + c, columns, blocks, size_t(n));
      });
    });
  }
  if (direct) return;
  op.accumulate ? run(stream, Add{op.sum, total}) : run(stream, Copy{op.sum, total});
}

}  // namespace trainer::cpu
#endif  // HWY_ONCE
