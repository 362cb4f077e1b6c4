// How many workers a plan's scratch is for, and which instructions the kernels may use. Both are set once, before any plan is made.
#pragma once

namespace trainer::cpu {

int planned_workers();
void set_planned_workers(int workers);

// Vector instructions, chosen when first asked: the best this CPU has, or what TRAINER_CPU_LEVEL=avx2|avx512|avx512_bf16 asks for.
// Throws Error(device) where the CPU has not what was asked for, or not even AVX2.
enum class Level { avx2, avx512, avx512_bf16 };
Level cpu_level();
const char* name_of(Level);

}  // namespace trainer::cpu
