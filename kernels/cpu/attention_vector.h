// The portable attention kernels: f32 arithmetic on any vector width, for operands of f32 and bf16 and any width of
// heads.
#pragma once
#include "kernels/cpu/attention_job.h"

namespace trainer::cpu {

// Forward of the queries [begin, end); backward of the whole sequence. T is float or bf16; scratch is that of
// attention_scratch.h, 128-byte aligned.
template <class T>
void vector_forward(const AttentionJob&, std::byte* scratch);
template <class T>
void vector_backward(const AttentionJob&, std::byte* scratch);

}  // namespace trainer::cpu
