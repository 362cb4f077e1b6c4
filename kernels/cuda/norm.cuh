// What the kernels of both norms share: a row belongs to a team of threads, which keeps it in registers.
#pragma once
#include <algorithm>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace trainer::cuda {

// Rows of [N, C], or of [N, G, D] seen as N * G rows of D; fewer than 2^32.
template <class T>
struct GroupRows {
  T* data = nullptr;
  int64_t stride = 0, groups = 1, columns = 0;

  GroupRows() = default;
  explicit GroupRows(const Tensor& t)
      : data(reinterpret_cast<T*>(t.data)),
        stride(t.shape.rank ? t.stride() : 0),
        groups(t.shape.rank == 3 ? t.shape[1] : 1),
        columns(t.shape.rank ? t.row_elements() / std::max<int64_t>(1, groups) : 0) {}
  __device__ explicit operator bool() const { return data != nullptr; }
  // Of row `group` of row `n`.
  __device__ T* at(uint32_t n, uint32_t group) const { return data + n * stride + group * columns; }
};

// Blocks of `lanes` threads a row and `rows` rows, whole warps together. REQUIRES of `most`: a multiple of a warp.
struct Team {
  int lanes, rows;
};
// At most `most_lanes` a row and `most` threads, but for a wider row. A lane holds `hold` vectors; what is beyond that
// is read again.
inline Team team_for(int64_t vectors, int hold, int most_lanes, int most, int64_t rows) {
  int lanes = 1;
  while (lanes < kWarp && lanes < vectors) lanes *= 2;
  if (vectors > kWarp * hold) lanes = threads_for(ceil_div(vectors, hold), most_lanes);
  const int of_warp = std::max(1, kWarp / lanes);
  const auto side_by_side = std::clamp<int64_t>(most / lanes, 1, std::max<int64_t>(1, rows));
  return {lanes, int(ceil_div(side_by_side, of_warp)) * of_warp};
}

// Whether rows can be accessed in packs of 16 bytes: each of them begins at a multiple of 16.
inline bool rows_aligned(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors) {
    if (!*t) continue;
    const uint64_t size = size_of(t->dtype);
    const bool grouped = t->shape.rank == 3 && t->shape[1] > 1, rows = t->shape.rank > 1;
    if (reinterpret_cast<uintptr_t>(t->data) % 16 || (rows && uint64_t(t->stride()) * size % 16) ||
        (grouped && uint64_t(t->shape[2]) * size % 16))
      return false;
  }
  return true;
}

}  // namespace trainer::cuda
