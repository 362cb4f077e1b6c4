// A record of the step (Control, Outcome) in memory that the host and the device both reach.
#pragma once
#include <vector>

#include "core/tensor/tensor.h"
#include "device_memory.h"

namespace trainer::test {

template <class T>
class Record {
 public:
  Record() : Record(T{}) {}
  Record(const T& value) : value_(1, value) {}
  T& operator*() { return value_[0]; }
  const T& operator*() const { return value_[0]; }
  T* operator->() { return &value_[0]; }
  const T* operator->() const { return &value_[0]; }
  operator Tensor() {
    return make_tensor(reinterpret_cast<std::byte*>(value_.data()), DType::u8, {int64_t(sizeof(T))});
  }

 private:
  std::vector<T, DeviceAllocator<T>> value_;
};

}  // namespace trainer::test
