// Arguments that no kernel takes. Apart from the kernels, because what formats a sentence is not for nvcc. All throw
// Error(device).
#pragma once
#include "core/tensor/tensor.h"

namespace trainer::cuda {

[[noreturn]] void refuse_dtype(const char* op, DType found);
[[noreturn]] void refuse_dtypes(const char* op, DType found, DType beside);
[[noreturn]] void refuse_rate(const char* op, float rate);
[[noreturn]] void refuse_head_width(const char* op, int64_t found, int64_t most);
// `what` was found to have `found` elements where `wanted` are wanted.
[[noreturn]] void refuse_size(const char* op, const char* what, int64_t found, int64_t wanted);

}  // namespace trainer::cuda
