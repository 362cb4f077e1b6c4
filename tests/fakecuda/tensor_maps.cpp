// The one call of the driver that kernels' hosts need: maps of tensors for bulk copies of tiles.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "tests/cuemu/tensor_map.h"
#include "tests/fakecuda/errors.h"
#include "tests/fakecuda/fake_cuda.h"

namespace fake {
namespace {

unsigned bytes_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: return 4;
    default: fail("tensor maps of type %d are not emulated", int(type));
  }
}
unsigned swizzle_of(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE: return 0;
    case CU_TENSOR_MAP_SWIZZLE_32B: return cuemu::kSwizzle32;
    case CU_TENSOR_MAP_SWIZZLE_64B: return cuemu::kSwizzle64;
    case CU_TENSOR_MAP_SWIZZLE_128B: return cuemu::kSwizzle128;
    default: fail("tensor maps of swizzle %d are not emulated", int(swizzle));
  }
}

// The limits as the driver's manual gives them.
CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data, const cuuint64_t* size,
                const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* element_strides,
                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                CUtensorMapFloatOOBfill fill) {
  constexpr uint64_t kAlignment = 16, kBox = 256;
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    fail("interleaved tensor maps and other fills than zero are not emulated");
  if (rank < 2 || rank > cuemu::TensorMap::kMaxRank) fail("tensor maps of %u dimensions are not emulated", rank);
  cuemu::TensorMap m{};
  m.mark = cuemu::TensorMap::kMark;
  m.rank = uint16_t(rank);
  m.element_bytes = uint16_t(bytes_of(type));
  m.data = static_cast<const char*>(data);
  m.swizzle_mask = swizzle_of(swizzle);
  if (reinterpret_cast<uintptr_t>(data) % kAlignment) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned d = 0; d < rank; ++d) {
    if (!size[d] || size[d] > uint64_t{1} << 32 || !box[d] || box[d] > kBox || element_strides[d] != 1)
      return CUDA_ERROR_INVALID_VALUE;
    m.size[d] = uint32_t(size[d]);
    m.box[d] = box[d];
    m.stride[d] = d == 0 ? m.element_bytes : strides[d - 1];
    if (d > 0 && m.stride[d] % kAlignment) return CUDA_ERROR_INVALID_VALUE;
  }
  const unsigned row = m.box[0] * m.element_bytes;
  // A swizzle's span: 128 bytes for the mask 0x70, 64 for 0x30, 32 for 0x10.
  const unsigned span = m.swizzle_mask ? m.swizzle_mask + 16 : row;
  if (row % kAlignment || row > span) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &m, sizeof m);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fake
using namespace fake;

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* result) {
  if (const cudaError_t e = unavailable()) return e;
  if (std::strcmp(name, "cuTensorMapEncodeTiled")) fail("the driver's %s is not emulated", name);
  *function = reinterpret_cast<void*>(&encode);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
