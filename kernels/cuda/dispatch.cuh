// From the dtypes of an operation's tensors to a kernel, and what no kernel takes.
#pragma once
#include <initializer_list>

#include "core/tensor/bf16.h"
#include "core/tensor/tensor.h"
#include "kernels/cuda/refuse.h"

namespace trainer::cuda {

// f(float{}) or f(bf16{}).
template <class F>
void with_dtype(const char* op, DType dtype, F&& f) {
  if (dtype == DType::f32) f(float{});
  else if (dtype == DType::bf16) f(bf16{});
  else refuse_dtype(op, dtype);
}
// The same for tensors that must be of one dtype; empty ones are passed over.
template <class F>
void with_dtype(const char* op, std::initializer_list<const Tensor*> tensors, F&& f) {
  const DType dtype = (*tensors.begin())->dtype;
  for (const Tensor* t : tensors)
    if (*t && t->dtype != dtype) refuse_dtypes(op, t->dtype, dtype);
  with_dtype(op, dtype, f);
}

}  // namespace trainer::cuda
