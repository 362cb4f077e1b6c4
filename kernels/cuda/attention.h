// Which kernels serve an attention: whoever cares may log or refuse it.
#pragma once
#include <string_view>

#include "core/ops/attention.h"

namespace trainer::cuda {

// tensor_core: bf16 with a head width of 64, 96 or 128 whose rows all begin at multiples of 16 bytes; weights and their
// gradients are rounded to bf16 before they are multiplied. warp_group: the same where the current device is of compute
// capability 9.0, whose wgmma no other has. generic: everything else, in f32 without tensor cores.
enum class AttentionPath : uint8_t { generic, tensor_core, warp_group };

AttentionPath attention_path(const Attention&);
AttentionPath attention_path(const AttentionGrad&);
std::string_view name_of(AttentionPath);

}  // namespace trainer::cuda
