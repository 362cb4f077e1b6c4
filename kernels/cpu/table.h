// The CPU's rows of the kernel tables.
#pragma once

namespace trainer::cpu {

// Once, before any plan is made. `workers` sizes per-worker scratch.
void install_cpu_kernels(int workers);

}  // namespace trainer::cpu
