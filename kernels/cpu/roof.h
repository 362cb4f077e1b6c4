// What this machine's products reach: the roof that `trainer bench` compares everything with.
#pragma once
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "kernels/cpu/pool.h"

namespace trainer::cpu {

struct ProductSpeed {
  std::string name;  // of a product of a transformer's training step
  int64_t m, n, k;
  double gflops;  // 1e9 FLOP/s on all workers, best of several runs
};

// Products of a GPT-2 124M layer over 4,096 tokens: forward, input gradient (c of `dtype`) and weight gradient (c f32).
// Takes about five seconds on two cores, and 120 MB of memory of its own.
std::vector<ProductSpeed> product_speeds(Pool& pool, DType dtype);

// The best of them.
double matmul_roof(Pool& pool, DType dtype);

}  // namespace trainer::cpu
