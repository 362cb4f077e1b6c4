// The roofs of a run: the best dense product, and the fastest copy, that this machine does just now.
#pragma once
#include "app/bench/op_runner.h"

namespace trainer {

DType bench_dtype(const RunSpec&);

// The largest side of the products tried: `wanted`, or the device's (0).
int64_t roof_size(const DeviceSpec&, int64_t wanted);
size_t roof_bytes(int64_t size, DType);  // of an OpRunner that measures it
// GFLOP/s: the best of several training shapes, plain operands, no epilogue. REQUIRES: `size` is a multiple of 48.
double matmul_roof(OpRunner&, DType, int64_t size);
// GB/s, read and written, of a copy of the largest of these products.
double copy_roof(OpRunner&, DType, int64_t size);

}  // namespace trainer
