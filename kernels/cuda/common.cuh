// What kernels share: types, conversions, the stream.
#pragma once
#include "core/device/device.h"
#include "cuda_port.h"

namespace trainer::cuda {

inline cudaStream_t stream_of(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

}  // namespace trainer::cuda
