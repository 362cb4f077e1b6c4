// Fixed grids of tasks over rows and elements: functions of shapes, never of the number of threads.
#pragma once
#include <algorithm>
#include <array>

#include "kernels/cpu/pool.h"

namespace trainer::cpu {

// Elements of one task: less is not worth a second thread.
inline constexpr int64_t kTaskElements = 16384;

// f(begin, end) over parts of [0, rows); a row has `columns` elements.
template <class F>
void for_rows(Pool& pool, int64_t rows, int64_t columns, F&& f) {
  const int64_t step = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, columns));
  pool.tasks((rows + step - 1) / step, [&](int64_t task, int) { f(task * step, std::min(rows, (task + 1) * step)); });
}
// f(task) over a grid that is fixed for another reason: serial where all `elements` of it are too few.
template <class F>
void for_tasks(Pool& pool, int64_t tasks, int64_t elements, F&& f) {
  if (elements > kTaskElements) return pool.tasks(tasks, [&](int64_t task, int) { f(task); });
  for (int64_t task = 0; task < tasks; ++task) f(task);
}
// f(block, begin, end) over `blocks` equal parts of [0, rows), for sums whose order is part of the result.
template <class F>
void for_blocks(Pool& pool, int64_t blocks, int64_t rows, int64_t columns, F&& f) {
  for_tasks(pool, blocks, rows * columns, [&](int64_t b) { f(b, rows * b / blocks, rows * (b + 1) / blocks); });
}

// Rows of a tensor [N, C], or [N, G, D] seen as N * G rows of D. Empty where the tensor is.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0, groups = 1, columns = 0, count = 0;

  Rows() = default;
  explicit Rows(const Tensor& t)
      : data(reinterpret_cast<T*>(t.data)), stride(t.stride()), groups(t.shape.rank == 3 ? t.shape[1] : 1) {
    columns = t.shape.rank ? t.row_elements() / std::max<int64_t>(1, groups) : 0;
    count = t.shape.rank ? t.rows() * groups : 0;
  }
  explicit operator bool() const { return data != nullptr; }
  T* operator[](int64_t r) const {
    return groups == 1 ? data + r * stride : data + r / groups * stride + r % groups * columns;
  }
};

// Where a span of elements lies in each of K tensors; nullptr in an empty one.
template <size_t K>
struct Span {
  std::array<std::byte*, K> at;
  size_t count;
  template <class T>
  T* as(size_t k) const {
    return reinterpret_cast<T*>(at[k]);
  }
};
// f(Span) over tensors of one shape, or of one number of elements where all are dense.
template <size_t K, class F>
void for_spans(Stream& stream, const std::array<Tensor, K>& tensors, F&& f) {
  const bool dense = std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return !t || t.dense(); });
  const int64_t rows = dense ? tensors[0].elements() : tensors[0].rows(),
                columns = dense ? 1 : tensors[0].row_elements();
  const auto span = [&](int64_t row, int64_t count) {
    Span<K> s{{}, size_t(count)};
    for (size_t k = 0; k < K; ++k)
      if (const Tensor& t = tensors[k]) s.at[k] = t.data + row * (dense ? 1 : t.stride()) * int64_t(size_of(t.dtype));
    f(s);
  };
  for_rows(pool_of(stream), rows, columns, [&](int64_t begin, int64_t end) {
    if (dense) return span(begin, end - begin);
    for (int64_t r = begin; r < end; ++r) span(r, columns);
  });
}

}  // namespace trainer::cpu
