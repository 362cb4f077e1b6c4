// Where the tests' tensors live: memory that the host and the device both reach.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <new>

namespace trainer::test {

template <class T>
struct DeviceAllocator {
  using value_type = T;
  DeviceAllocator() = default;
  template <class U>
  DeviceAllocator(const DeviceAllocator<U>&) {}
  T* allocate(size_t n) {
    void* p = nullptr;
    if (cudaMallocManaged(&p, n * sizeof(T), cudaMemAttachGlobal) != cudaSuccess) throw std::bad_alloc();
    return static_cast<T*>(p);
  }
  void deallocate(T* p, size_t) { cudaFree(p); }
  template <class U>
  bool operator==(const DeviceAllocator<U>&) const {
    return true;
  }
};

}  // namespace trainer::test
