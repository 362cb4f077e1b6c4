#include "kernels/cuda/common.cuh"
#include "kernels/cuda/kernels.h"

namespace trainer::cuda {

void run(Stream& stream, const Zero& op) { cudaMemsetAsync(op.x.data, 0, op.x.bytes(), stream_of(stream)); }

}  // namespace trainer::cuda
