// Where the tests' tensors live: memory that the host and the device both reach.
#pragma once
#include <memory>

namespace trainer::test {

template <class T>
using DeviceAllocator = std::allocator<T>;

}  // namespace trainer::test
