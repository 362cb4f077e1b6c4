// The roof of a run: the best dense product this machine does just now.
#pragma once
#include "app/bench/op_runner.h"

namespace trainer {

DType bench_dtype(const std::string& name);  // bf16 | fp32; throws Error(usage)
// GFLOP/s on all of the runner's threads: the best of several training shapes, plain operands, no epilogue.
double matmul_roof(OpRunner&, DType);

}  // namespace trainer
