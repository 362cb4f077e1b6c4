// The AVX512-BF16 attention kernels: bf16 operands, head widths of 64 and 128, each instruction adding two products to
// sixteen sums. For a CPU of Level::avx512_bf16 only.
#pragma once
#include "kernels/cpu/attention_job.h"

namespace trainer::cpu {

// Forward of the queries [begin, end); backward of the whole sequence. Scratch is that of attention_scratch.h, 128-byte
// aligned.
void pair_forward(const AttentionJob&, std::byte* scratch);
void pair_backward(const AttentionJob&, std::byte* scratch);

}  // namespace trainer::cpu
