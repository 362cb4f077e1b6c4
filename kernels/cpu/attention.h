// Attention by a given kernel: what `run` does once it has chosen one.
#pragma once
#include "core/ops/attention.h"
#include "kernels/cpu/attention_job.h"

namespace trainer::cpu {

// One task, with one worker's scratch.
using AttentionKernel = void (*)(const AttentionJob&, std::byte* scratch);

// Checks the operands, cuts them into a fixed grid of tasks and runs these on the stream's pool. Scratch is that of
// `scratch_bytes`.
void attend(Stream&, const Attention&, AttentionKernel);
void attend(Stream&, const AttentionGrad&, AttentionKernel);

}  // namespace trainer::cpu
