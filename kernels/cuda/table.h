// The GPU's rows of the kernel tables.
#pragma once

namespace trainer::cuda {

// Once, before any plan is made. Needs no GPU.
void install_cuda_kernels();

}  // namespace trainer::cuda
