// Indices that come from data: tokens and positions.
#pragma once
#include "core/base/error.h"
#include "core/tensor/tensor.h"

namespace trainer::cpu {

// Throws Error(data) at the first of `ids` (i32, or empty) outside [0, limit).
inline void check_ids(const char* op, const char* what, const Tensor& ids, int64_t limit) {
  if (!ids) return;
  const auto* id = data_as<const int32_t>(ids);
  for (int64_t n = 0; n < ids.elements(); ++n)
    check(id[n] >= 0 && id[n] < limit, Exit::data, "{}: row {}: wanted a {} below {}, found {}", op, n, what, limit,
          id[n]);
}

// The position of row n: as given, or n modulo the sequence.
class Positions {
 public:
  Positions(const Tensor& ids, int64_t seq_len) : ids_(data_as<const int32_t>(ids)), seq_len_(seq_len) {}
  int64_t operator[](int64_t n) const { return ids_ ? ids_[n] : n % seq_len_; }

 private:
  const int32_t* ids_;
  int64_t seq_len_;
};

}  // namespace trainer::cpu
