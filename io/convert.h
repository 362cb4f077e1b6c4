// Numbers from one stored type to another: widening is exact, narrowing rounds to nearest even.
#pragma once
#include "core/tensor/tensor.h"
#include "io/safetensors.h"

namespace trainer {

// f32 and bf16 are what a state consists of.
const StoredType* stored_type_of(DType);
bool can_convert(const StoredType* from);  // F32, BF16, F16

// REQUIRES: can_convert(from), `to_type` f32 or bf16; the ranges do not overlap.
void convert(const std::byte* from, const StoredType* from_type, std::byte* to, DType to_type, int64_t elements);

}  // namespace trainer
