// From an operation to vector code: one source, compiled for AVX2 and for AVX-512, chosen when it runs.
//
// A kernel source reads
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
//   #include <hwy/foreach_target.h>
//   #include "kernels/cpu/vector-inl.h"
//   HWY_BEFORE_NAMESPACE();
//   namespace trainer::cpu::HWY_NAMESPACE { vector code: templates over float and bf16 }
//   HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE
//   namespace trainer::cpu { void run(Stream&, const Op&): calls TRAINER_VECTOR(function<T>)(...) }
//   #endif
// Lambdas in vector code need HWY_ATTR. The library `trainer_vector` (kernels/cpu/rows.cmake) carries the choice of
// instruction sets.
#pragma once
#include <initializer_list>

#include "core/base/error.h"
#include "core/tensor/bf16.h"
#include "core/tensor/tensor.h"
#include "kernels/cpu/workers.h"

// A pointer to the version of a vector function for this CPU.
#define TRAINER_VECTOR(...) (cpu_level() == Level::avx2 ? &N_AVX2::__VA_ARGS__ : &N_AVX3::__VA_ARGS__)

namespace trainer::cpu {

// f(float{}) or f(bf16{}).
template <class F>
void with_dtype(const char* op, DType dtype, F&& f) {
  if (dtype == DType::f32) f(float{});
  else if (dtype == DType::bf16) f(bf16{});
  else fail(Exit::device, "{}: wanted f32 or bf16, found a tensor of {}", op, name_of(dtype));
}
// The same for tensors that must be of one dtype; empty ones are passed over.
template <class F>
void with_dtype(const char* op, std::initializer_list<const Tensor*> tensors, F&& f) {
  const DType dtype = (*tensors.begin())->dtype;
  for (const Tensor* t : tensors)
    check(!*t || t->dtype == dtype, Exit::device, "{}: wanted tensors of one dtype, found {} beside {}", op,
          name_of(t->dtype), name_of(dtype));
  with_dtype(op, dtype, f);
}

}  // namespace trainer::cpu
